// Where notices come up beside the panel. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { besidePx } from '../lib/models/beside.js';

test('notices come up beside a panel at the right, and never beyond the window', () => {
  assert.equal(besidePx({ left: 1000, right: 1250 }, 1280, 13), 280);
  assert.equal(besidePx({ left: 500, right: 750 }, 780, 16), 280);
  assert.equal(besidePx({ left: 300, right: 750 }, 780, 16), 0, 'there is no room beside it');
  assert.equal(besidePx({ left: 30, right: 280 }, 1280, 13), 0, 'it stands at the left');
});
