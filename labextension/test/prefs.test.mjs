// What a person has set, read with care; the schema says the same. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { DEFAULTS, readPreferences } from '../lib/models/prefs.js';

test('what is not set, or makes no sense, is as by default', () => {
  assert.deepEqual(readPreferences({}), DEFAULTS);
  const odd = { cellLines: 'no', pollSeconds: 'often', notify: { executorLost: 1, other: true } };
  assert.deepEqual(readPreferences(odd), DEFAULTS);
  assert.deepEqual(readPreferences({ notify: null }), DEFAULTS);
});

test('what is set holds, within its bounds', () => {
  const said = readPreferences({ cellLines: false, pollSeconds: 0.001, notify: { quotaReached: false } });
  assert.equal(said.cellLines, false);
  assert.equal(said.pollSeconds, 1);
  assert.equal(readPreferences({ pollSeconds: 1e9 }).pollSeconds, 60);
  assert.deepEqual(said.notify, { ...DEFAULTS.notify, quotaReached: false });
});

test('the schema has the same defaults', () => {
  const { properties } = JSON.parse(
    readFileSync(new URL('../schema/settings.json', import.meta.url), 'utf8')
  );
  const { notify, ...others } = properties;
  const defaults = those =>
    Object.fromEntries(Object.entries(those).map(([name, one]) => [name, one.default]));
  assert.deepEqual({ ...defaults(others), notify: defaults(notify.properties) }, DEFAULTS);
});
