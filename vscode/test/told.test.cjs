const assert = require('node:assert/strict');
const test = require('node:test');

const { Known } = require('../out/told.js');
const { badCount, cellInWords, gpusAsked, treeOf, withGpus } = require('../out/words.js');

const run = more => ({
    msg_id: 'm1',
    cell_id: 'c1',
    state: 'done',
    safety: 'durable',
    status: 'ok',
    ename: '',
    host: 'here',
    replica: 'r1',
    gpus: [],
    wanted: 0,
    position: null,
    estimate_s: null,
    trouble: '',
    accepted_at: 1,
    began_at: 2,
    ended_at: 3.5,
    ...more
});
const line = more => JSON.stringify({ kernel_id: 'k', ...more });

test('a line changes what it names and leaves the rest', () => {
    const known = new Known();
    assert.ok(
        known.take(line({ afresh: true, state: 'live', executions: [run()], hosts: [{ name: 'here' }] }), 0)
    );
    known.take(line({ executions: [run({ msg_id: 'm2', state: 'running', accepted_at: 9 })] }), 0);
    assert.equal(known.cells.get('c1').state, 'running');
    assert.deepEqual(known.hosts, [{ name: 'here' }]);
    known.take(line({ executions: [run({ safety: 'lost' })] }), 0);
    assert.equal(known.cells.get('c1').msg_id, 'm2', 'an earlier run of the cell says nothing any more');
});

test('a kernel that is gone runs no cell, and what went wrong is shown', () => {
    const known = new Known();
    known.take(line({ afresh: true, state: 'live', executions: [run({ state: 'running', ended_at: null })] }), 0);
    known.take(line({ state: 'rests', holdings: [] }), 1);
    assert.equal(known.cells.size, 0);
    const silent = new Known();
    silent.trouble = 'replkernel follow: spawn replkernel ENOENT';
    assert.match(JSON.stringify(treeOf(silent)), /ENOENT/);
});

test('what is not understood changes nothing', () => {
    const known = new Known();
    for (const text of ['', 'null', '{"kernel_id": 3}', '[1]', 'Traceback']) {
        assert.equal(known.take(text, 0), false);
    }
    assert.deepEqual(treeOf(known), []);
});

test('another kernel begins with nothing', () => {
    const known = new Known();
    known.take(line({ executions: [run()], holdings: [{ host: 'here', gpus: ['GPU-1'] }] }), 0);
    known.take(JSON.stringify({ kernel_id: 'other', afresh: true }), 0);
    assert.equal(known.cells.size, 0);
    assert.deepEqual(known.held, []);
});

test('a cell says what it does, where, for how long, and whether it is safe', () => {
    assert.equal(cellInWords(run(), 9).text, '$(pass) Done · r1 · here · 1.5 s · $(check) durable');
    const waits = run({
        state: 'waiting',
        wanted: 2,
        position: 1,
        estimate_s: 29.6,
        replica: '',
        began_at: null
    });
    assert.equal(cellInWords(waits, 9).text, '$(clock) Waiting for 2 GPUs, next in line, about 30 s');
    const failed = run({ status: 'error', ename: 'ValueError', safety: 'lost' });
    assert.match(cellInWords(failed, 9).text, /Failed: ValueError.*changes lost: run this cell again/);
    const running = run({ state: 'running', ended_at: null, safety: 'pending', gpus: ['GPU-1'] });
    assert.equal(cellInWords(running, 6).text, '$(play) Running · r1 · here · 1 GPU · 4.0 s');
    assert.doesNotMatch(cellInWords(run({ safety: 'pending' }), 9).text, /\bdurable$(?<!not durable)/);
});

test('the side bar lists GPUs, replicas with their pins, and hosts', () => {
    const known = new Known();
    const replicas = [
        { replica: 'r1', host: 'here', role: 'executor', pinned: [{ name: 'socket', reason: 'a socket' }] }
    ];
    const hosts = [
        { name: 'here', state: 'up', gpus: [{ name: 'H100', state: 'lingering', utilisation: 0.42 }] }
    ];
    known.take(
        line({
            state: 'live',
            kernel: { replicas },
            hosts,
            holdings: [{ host: 'here', gpus: ['GPU-1'] }],
            waiting: [{}]
        }),
        0
    );
    const [gpus, all, machines] = treeOf(known);
    assert.equal(gpus.detail, '1 held by this notebook, 1 cell is waiting in the cluster');
    assert.equal(all.below[0].detail, 'executor · here');
    assert.equal(all.below[0].below[0].label, 'socket');
    assert.equal(machines.below[0].below[0].detail, 'kept between cells · 42 % busy');
});

test('a request is written beside what the metadata hold, and taken away again', () => {
    const before = { cell_type: 'code', metadata: { tags: ['a'], replkernel: { vram_gb: 20 } } };
    const after = withGpus(before, 2);
    assert.deepEqual(after, {
        cell_type: 'code',
        metadata: { tags: ['a'], replkernel: { vram_gb: 20, gpus: 2 } }
    });
    assert.equal(gpusAsked(after), 2);
    assert.deepEqual(withGpus({ metadata: { replkernel: { gpus: 2 } } }, 0), { metadata: {} });
    assert.equal(gpusAsked({}), 0);
    const shared = { metadata: { replkernel: { gpus: 0.5, share: true } } };
    assert.deepEqual(
        [0.25, 2, 0].map(count => withGpus(shared, count).metadata.replkernel),
        [{ gpus: 0.25, share: true }, { gpus: 2 }, undefined]
    );
    assert.deepEqual(
        ['0', ' 64 ', '0.5', '65', '-1', '1.5', 'two', '', '0.000'].map(text => badCount(text) === undefined),
        [true, true, true, false, false, false, false, false, false]
    );
});
