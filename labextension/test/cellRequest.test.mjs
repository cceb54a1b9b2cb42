// What a cell asks for in its metadata, as the panel and the cell's line write it. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { readCellRequest, writeCellRequest } from '../lib/models/cellRequest.js';

const cell = own => {
  const held = new Map([['replkernel', own]]);
  return {
    getMetadata: name => held.get(name),
    setMetadata: (name, value) => held.set(name, value),
    deleteMetadata: name => held.delete(name)
  };
};
const written = (own, request) => {
  const model = cell(own);
  writeCellRequest(model, request);
  return model.getMetadata('replkernel');
};

test('a change of what is asked for leaves alone whether it is shared, while that can be', () => {
  const own = { gpus: 0.5, share: true, cpu: 4 };
  assert.deepEqual(written(own, { gpus: 0.25, vramGb: 8 }), { gpus: 0.25, vram_gb: 8, share: true, cpu: 4 });
  assert.deepEqual(written(own, { gpus: 1, vramGb: 8 }), { gpus: 1, vram_gb: 8, share: true, cpu: 4 });
  assert.deepEqual(written(own, { gpus: 1, vramGb: 0 }), { gpus: 1, cpu: 4 });
  assert.deepEqual(written(own, { gpus: 2, vramGb: 8 }), { gpus: 2, vram_gb: 8, cpu: 4 });
  assert.equal(written({ gpus: 0.5, share: true }, { gpus: null, vramGb: 0 }), undefined);
  assert.deepEqual(readCellRequest(cell(own)), { gpus: 0.5, vramGb: 0 });
});
