// An execution put into the model of a cell. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

register('./endings.mjs', import.meta.url);
const { showExecution } = await import('../lib/models/cells.js');

const stream = text => ({ output_type: 'stream', name: 'stdout', text });
const html = text => ({ output_type: 'display_data', data: { 'text/html': text }, metadata: {} });

/** A cell of a file: as in JupyterLab, what it holds as it becomes trusted is drawn anew, and its scripts run. */
class FileCell {
  executionCount = null;
  executionState = 'idle';
  trustedOutputs = [];
  cleared = 0;

  constructor(outputs, trusted) {
    this._outputs = outputs;
    this._trusted = trusted;
    const cell = this;
    this.outputs = {
      get length() {
        return cell._outputs.length;
      },
      toJSON: () => structuredClone(cell._outputs),
      clear: () => {
        cell.cleared += 1;
        cell._outputs = [];
      },
      add: output => cell._put(cell._outputs.length, output),
      set: (index, output) => cell._put(index, output),
      fromJSON: outputs => {
        cell.outputs.clear();
        outputs.forEach(cell.outputs.add);
      }
    };
  }

  get trusted() {
    return this._trusted;
  }

  set trusted(value) {
    if (value && !this._trusted) {
      this.trustedOutputs.push(...this._outputs);
    }
    this._trusted = value;
  }

  _put(index, output) {
    this._outputs[index] = output;
    if (this._trusted) {
      this.trustedOutputs.push(output);
    }
  }
}

const execution = outputs => ({ outputs, running: false, executionCount: 3 });

for (const [what, wanted] of [
  ['of the same kind', [html('<b>mine</b>')]],
  ['of another kind', [stream('mine')]],
  ['of which there are none', []]
]) {
  test(`what an untrusted file holds is never shown as trusted, before outputs ${what}`, () => {
    const cell = new FileCell([html('<script>theirs</script>')], false);
    showExecution(cell, execution(wanted));
    assert.deepEqual(cell.outputs.toJSON(), wanted);
    assert.ok(cell.trusted);
    assert.deepEqual(cell.trustedOutputs, wanted);
  });
}

test('an untrusted cell that shows what it should is left untrusted', () => {
  const cell = new FileCell([html('<b>mine</b>')], false);
  showExecution(cell, execution([html('<b>mine</b>')]));
  assert.equal(cell.trusted, false);
});

test('a trusted cell keeps what is shown already', () => {
  const cell = new FileCell([stream('1')], true);
  showExecution(cell, execution([stream('1'), html('<b>2</b>')]));
  assert.deepEqual(cell.outputs.toJSON(), [stream('1'), html('<b>2</b>')]);
  assert.equal(cell.cleared, 0);
});
