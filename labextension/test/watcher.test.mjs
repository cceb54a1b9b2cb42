// What is known of the kernel of one notebook's session. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

register('./endings.mjs', import.meta.url);
const { isReplicated } = await import('../lib/models/replicated.js');
const { SessionWatcher } = await import('../lib/models/watcher.js');

const specs = {
  specs: {
    kernelspecs: {
      gpu: { metadata: { kernel_provisioner: { provisioner_name: 'replkernel-provisioner' } } },
      python3: { metadata: {} }
    }
  }
};

/** Watch a notebook that has just been opened. */
function watch(name) {
  const context = { session: { kernel: { name } } };
  for (const signal of ['sessionChanged', 'kernelChanged', 'statusChanged', 'disposed']) {
    context[signal] = new Signal(context);
  }
  context.session.anyMessage = new Signal(context.session);
  return new SessionWatcher(context, kernel => isReplicated(kernel, specs));
}

test('before its first reply a kernel is known by its kernelspec, whatever that is called', () => {
  assert.equal(watch('gpu').replicated, true);
  assert.equal(watch('replkernel').replicated, true);
  assert.equal(watch('python3').replicated, false);
});
