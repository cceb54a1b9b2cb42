// Whatever people read goes through the translator, and each language says all of it.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

import { collect } from '../messages.mjs';

const PLACE = new URL('../../server_ext/replkernel_server/locale/', import.meta.url);
const read = path => readFileSync(new URL(path, PLACE), 'utf8');
const languages = readdirSync(PLACE, { withFileTypes: true })
  .filter(one => one.isDirectory())
  .map(one => one.name);
const { messages, problems } = collect();
const keys = new Set(messages.map(({ id, context }) => (context === '' ? id : `${context}\u0004${id}`)));
const placeholders = text => (text.match(/%\d/g) ?? []).sort();
const around = text =>
  [/^\s*/, /\s*$/, /…$/, /[.:?]$/].map(pattern => pattern.exec(text)?.[0].trimEnd() ?? '');

test('all that people read goes through the translator, as a literal', () => {
  assert.deepEqual(problems, []);
  assert.ok(keys.size > 300, `${keys.size} messages`);
});

test('the template has each message of the sources and no other: `make translations` writes it', () => {
  const entries = read('replkernel.pot').split('\n\n').slice(1);
  const unquoted = entry =>
    Object.fromEntries(
      ['msgctxt', 'msgid'].map(field => {
        const [, lines = '""'] = new RegExp(`^${field} ((?:".*"\\n?)+)`, 'm').exec(entry) ?? [];
        return [
          field,
          lines
            .trim()
            .split('\n')
            .map(line => JSON.parse(line))
            .join('')
        ];
      })
    );
  const found = entries
    .map(unquoted)
    .map(one => (one.msgctxt === '' ? one.msgid : `${one.msgctxt}\u0004${one.msgid}`));
  assert.deepEqual([...found].sort(), [...keys].sort());
});

test('there is a whole language', () => {
  assert.ok(languages.includes('de_DE'));
});

for (const language of languages) {
  const { '': head, ...said } = JSON.parse(read(`${language}/LC_MESSAGES/replkernel.json`));

  test(`${language}: every message is translated, and nothing else`, () => {
    assert.deepEqual(Object.keys(said).sort(), [...keys].sort());
    for (const [key, translations] of Object.entries(said)) {
      assert.equal(translations.length, 1, key);
      assert.notEqual(translations[0].trim(), '', key);
    }
  });

  test(`${language}: a translation has the placeholders of its message, and begins and ends as that does`, () => {
    for (const [key, [translation]] of Object.entries(said)) {
      const id = key.split('\u0004').at(-1);
      assert.deepEqual(placeholders(translation), placeholders(id), key);
      assert.deepEqual(around(translation), around(id), key);
    }
  });

  test(`${language}: JupyterLab knows whose it is`, () => {
    assert.equal(head.domain, 'replkernel');
    assert.equal(head.language, language.replace('_', '-'));
    assert.match(head.plural_forms, /^nplurals=\d; plural=/);
  });
}
