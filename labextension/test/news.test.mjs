// What is worth a notification, and what is not. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { LiveStore } from '../lib/models/live.js';
import { LOSS_CALM_S, News } from '../lib/models/news.js';

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);

/** A page that is told of a kernel and of all else; `tell` returns what is worth a notification then. */
function page() {
  const store = new LiveStore();
  const news = new News(id => `${id}.ipynb`, trans);
  let seq = 0;
  const told = {
    leases: [],
    queue: [],
    scheduler: { url: 'u', trouble: '', waiting: null, subscription_ratio: null, booked: [] },
    account: null,
    hosts: [],
    executions: []
  };
  const tell = (now, more = {}) => {
    Object.assign(told, more);
    seq += 1;
    store.apply({ type: 'snapshot', seq, now, kernels: [kernel()], ...told }, now);
    return news.look(store, now).map(one => [one.kind, one.message]);
  };
  return { tell, news, store };
}

const replica = (name, role, more = {}) => ({
  ...{ replica: name, role, lag: 0, last_death: '', pid: 7, pins: [] },
  ...more
});
const kernel = (more = {}) => ({
  kernel_id: 'a',
  served: true,
  rest: 'awake',
  execution_count: 5,
  replicas: [replica('r1', 'executor'), replica('r2', 'standby'), replica('r3', 'standby')],
  ...more
});
const killed = { last_death: 'killed by signal 9' };
const afterLoss = [replica('r1', 'starting', killed), replica('r2', 'executor'), replica('r3', 'standby')];
const whole = [replica('r1', 'standby', killed), replica('r2', 'executor'), replica('r3', 'standby')];

test('a process that died is told once: what, that the state is safe, and why', () => {
  const { tell, news } = page();
  assert.deepEqual(tell(0), []);
  assert.deepEqual(tell(1, { kernels: [kernel({ replicas: afterLoss })] }), []);
  assert.equal(news.deadline(), 1 + LOSS_CALM_S);
  assert.deepEqual(tell(3), [
    [
      'executorLost',
      'a.ipynb: the process that ran its cells died: killed by signal 9. The notebook’s variables are safe: run the next cell.'
    ]
  ]);
  assert.equal(news.deadline(), null);
  assert.deepEqual(tell(4), []);
  assert.deepEqual(tell(6, { kernels: [kernel({ replicas: whole })] }), [], 'one notice, not two');
});

test('one that is no executor any more before its end is told has died as well', () => {
  const { tell } = page();
  tell(0);
  const idle = more => [replica('r1', 'standby', more), replica('r2', 'standby'), replica('r3', 'standby')];
  assert.deepEqual(tell(1, { kernels: [kernel({ replicas: idle({}) })] }), []);
  assert.deepEqual(tell(2, { kernels: [kernel({ replicas: idle({ ...killed, pid: 0 }) })] }), []);
  assert.equal(tell(5)[0][0], 'executorLost');
  assert.deepEqual(tell(9, { kernels: [kernel({ replicas: idle({ ...killed, pid: 9 }) })] }), []);
});

test('what lived in the process alone is not called safe', () => {
  const { tell } = page();
  const pins = [{ name: 's', reason: 'a socket' }];
  const others = [replica('r2', 'standby'), replica('r3', 'standby')];
  tell(0, { kernels: [kernel({ replicas: [replica('r1', 'executor', { pins }), ...others] })] });
  tell(1, { kernels: [kernel({ replicas: [replica('r1', 'starting', killed), ...others] })] });
  assert.match(
    tell(3)[0][1],
    /killed by signal 9\. All variables are safe except s: run their cells again\.$/
  );
});

test('of a long reason the notice leaves the end out, never what is safe and what to do', () => {
  const { tell } = page();
  tell(0);
  const died = {
    last_death: 'killed by the kernel for lack of memory (the machine had none left), '.repeat(3)
  };
  const others = [replica('r2', 'executor'), replica('r3', 'standby')];
  tell(1, { kernels: [kernel({ replicas: [replica('r1', 'starting', died), ...others] })] });
  const told = tell(3)[0][1];
  assert.match(told, /…\. The notebook’s variables are safe: run the next cell\.$/);
  assert.ok(told.length <= 140);
});

test('a cell that was cut short can be run again, and lost changes are not called safe', () => {
  const { tell, store, news } = page();
  tell(0);
  const cell = { kernel_id: 'a', cell_id: 'c', msg_id: 'm', accepted_at: 1, state: 'done', replica: 'r1' };
  const executions = [{ ...cell, ename: 'ExecutorLost', safety: 'lost', trouble: '' }];
  tell(1, { kernels: [kernel({ replicas: afterLoss })], executions });
  const [notice] = news.look(store, 3);
  assert.equal(notice.again, 'a');
  assert.match(notice.message, /variables are safe: run the cell again/);
  const before = { ...cell, cell_id: 'b', msg_id: 'l', ename: '', safety: 'lost', trouble: '' };
  const other = page();
  other.tell(0);
  other.tell(1, { kernels: [kernel({ replicas: afterLoss })], executions: [...executions, before] });
  assert.match(other.tell(3)[0][1], /Run the cells marked “Changes lost” again/);
});

test('one that dies a second time of the same reason is told again', () => {
  const { tell } = page();
  tell(0, {
    kernels: [
      kernel({
        replicas: whole.map(one => ({ ...one, role: one.replica === 'r1' ? 'executor' : 'standby' }))
      })
    ]
  });
  tell(1, { kernels: [kernel({ replicas: afterLoss })] });
  assert.equal(tell(3)[0][0], 'executorLost');
});

test('so is one whose successor is there before anybody looked', () => {
  const { tell } = page();
  const executing = pid =>
    whole.map(one => ({ ...one, pid, role: one.replica === 'r1' ? 'executor' : 'standby' }));
  tell(0, { kernels: [kernel({ replicas: executing(7) })] });
  tell(1, { kernels: [kernel({ replicas: executing(8) })] });
  assert.equal(tell(3)[0][0], 'executorLost');
});

test('so is one whose agent was late with its word, and told nothing of its replica meanwhile', () => {
  const { tell } = page();
  const others = [replica('r2', 'standby'), replica('r3', 'standby')];
  tell(0);
  assert.deepEqual(tell(1, { kernels: [kernel({ replicas: others })] }), []);
  assert.deepEqual(tell(2, { kernels: [kernel({ replicas: afterLoss })] }), []);
  assert.equal(tell(5)[0][0], 'executorLost');
});

test('so is one that ran a cell, and died, before its host told that it is the executor', () => {
  for (const other of ['standby', 'executor']) {
    const { tell } = page();
    const idle = [replica('r1', 'standby'), replica('r2', other), replica('r3', 'standby')];
    tell(0, { kernels: [kernel({ replicas: idle, executor: 'r1' })] });
    const again = pid => kernel({ replicas: whole.map(one => ({ ...one, pid })), executor: 'r1' });
    assert.deepEqual(tell(1, { kernels: [kernel({ replicas: afterLoss, executor: 'r1' })] }), []);
    assert.equal(tell(3)[0][0], 'executorLost');
    assert.deepEqual(tell(6, { kernels: [again(8)] }), []);
    assert.deepEqual(tell(9), [], 'once');
    assert.deepEqual(tell(12, { kernels: [again(9)] }), []);
    assert.equal(tell(15)[0][0], 'executorLost', 'it died again');
  }
});

test('a restart, hibernation, a move and what was so before are no losses', () => {
  for (const then of [{ execution_count: 0 }, { rest: 'saving' }]) {
    const { tell } = page();
    tell(0);
    tell(1, { kernels: [kernel({ replicas: afterLoss })] });
    assert.deepEqual(tell(3, { kernels: [kernel({ replicas: afterLoss, ...then })] }), []);
    assert.deepEqual(tell(9), []);
  }
  const moved = page();
  moved.tell(0);
  moved.tell(1, { kernels: [kernel({ replicas: [...afterLoss.slice(1), replica('r4', 'standby')] })] });
  assert.deepEqual(moved.tell(9), []);
  const rests = page();
  for (const [role, pid] of [
    ['executor', 7],
    ['dormant', 0],
    ['starting', 9],
    ['standby', 9]
  ]) {
    const replicas = [replica('r1', role, { ...killed, pid }), ...whole.slice(2)];
    assert.deepEqual(rests.tell(pid, { kernels: [kernel({ replicas, executor: 'r1' })] }), []);
  }
  assert.equal(rests.news.deadline(), null);
  const late = page();
  late.tell(0, { kernels: [kernel({ replicas: whole })] });
  assert.deepEqual(late.tell(9), []);
});

test('a kernel that is resumed is told when a replica is well', () => {
  const { tell } = page();
  tell(0, { kernels: [kernel({ rest: 'asleep', replicas: [] })] });
  assert.deepEqual(tell(1, { kernels: [kernel({ replicas: [] })] }), []);
  assert.deepEqual(tell(2, { kernels: [kernel()] }), [
    ['stateRestored', 'a.ipynb: resumed with all its variables']
  ]);
});

test('a scheduler that is away is told once, and its return', () => {
  const { tell } = page();
  const [[kind, message]] = tell(10, { scheduler: { url: 'u', trouble: 'it does not answer' } });
  assert.equal(kind, 'schedulerUnreachable');
  assert.match(message, /Cells without GPUs run, and you keep the GPUs you have/);
  assert.ok(message.length <= 140);
  assert.deepEqual(tell(30), []);
  assert.match(
    tell(31, {
      scheduler: { url: 'u', trouble: '', waiting: null, subscription_ratio: null, booked: [] }
    })[0][1],
    /answers again/
  );
});

test('a cell that a quota refused GPUs is told once, and GPU-hours that are used up', () => {
  const why = 'The quota gpu_quota of carol is 4 GPUs at once; 4 are in use, 0 asked for, 1 more are wanted.';
  const refused = (number, trouble = why) => ({
    kernel_id: 'a',
    cell_id: `c${number}`,
    msg_id: `m${number}`,
    accepted_at: number,
    state: 'done',
    ename: 'GpusDenied',
    trouble
  });
  const { tell } = page();
  assert.deepEqual(tell(0, { executions: [refused(1)] }), [], 'what was so before is no news');
  assert.deepEqual(tell(1, { executions: [refused(1), refused(2), refused(3)] }), [
    ['quotaReached', `a.ipynb: ${why}`]
  ]);
  assert.deepEqual(tell(2), []);
  const money = { spent_month: null, budget_month: null, currency: '' };
  const account = { gpus_held: 2, gpu_quota: 2, gpu_hours_month: 1, gpu_hours_month_quota: null, ...money };
  assert.deepEqual(tell(3, { account }), [], 'nobody is refused');
  assert.match(tell(4, { account: { ...account, gpu_hours_month_quota: 1 } })[0][1], /1 GPU-hours a month/);
});

test('a budget is told of before it is spent, and once it is', () => {
  const { tell } = page();
  const account = { gpu_hours_month: 1, gpu_hours_month_quota: null, budget_month: 10, currency: 'EUR' };
  const told = (at, spent) => tell(at, { account: { ...account, spent_month: spent } }).map(one => one[1]);
  assert.deepEqual(told(0, 8.9), []);
  assert.match(told(1, 9)[0], /Nine tenths of your budget of 10.00 EUR a month are spent/);
  assert.deepEqual(told(2, 9.5), [], 'once');
  assert.match(told(3, 10)[0], /Your budget of 10.00 EUR a month is spent/);
  assert.deepEqual(told(4, 11), []);
  assert.deepEqual(tell(5, { account: { ...account, budget_month: null, spent_month: 11 } }), []);
});
