// Lint rules of the lab extension: everything typescript-eslint checks with types, strictly.
import eslint from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(eslint.configs.recommended, ...tseslint.configs.strictTypeChecked, {
  languageOptions: {
    parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname }
  },
  rules: {
    '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
    // Signals call their slots with the receiver that `connect` was given.
    '@typescript-eslint/unbound-method': 'off',
    curly: ['error', 'all'],
    eqeqeq: 'error',
    'prefer-arrow-callback': 'error'
  }
});
