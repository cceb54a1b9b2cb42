// When the page asks for a notebook's history. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

import services from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import { pass, playTime } from './played.mjs';

register('./endings.mjs', import.meta.url);
const { Histories } = await import('../lib/models/histories.js');
const { LiveStore } = await import('../lib/models/live.js');

const SNAPSHOT = { type: 'snapshot', executions: [], hosts: [], leases: [], queue: [] };
const REFUSED = { message: 'Kernel k is hibernated: resume it first.', reason: 'hibernated' };

/** A page with one kernel, and a server that answers all questions alike. */
class Page {
  asked = 0;
  status = 409;
  body = REFUSED;

  constructor() {
    this.live = { store: new LiveStore() };
    this.live.changed = new Signal(this.live);
    const answer = async () => {
      this.asked += 1;
      await this.held;
      return new Response(JSON.stringify(this.body), { status: this.status });
    };
    const settings = services.ServerConnection.makeSettings({ baseUrl: 'http://host/', fetch: answer });
    this.histories = new Histories(settings, this.live, () => Promise.resolve(true));
    this.seq = 0;
  }

  /** The server tells which kernels it has. */
  tell(...kernels) {
    this.seq += 1;
    const touched = this.live.store.apply({ ...SNAPSHOT, seq: this.seq, now: 0, kernels }, 0);
    this.live.changed.emit(touched);
  }
}

const kernel = rest => ({ kernel_id: 'k', state: rest === 'asleep' ? 'hibernated' : 'live', rest });

playTime();

test('a hibernated kernel is asked once, and again once it is awake', async () => {
  const page = new Page();
  page.tell(kernel('asleep'));
  page.histories.want('k');
  await pass(60);
  assert.equal(page.asked, 1);
  assert.equal(page.histories.trouble('k'), REFUSED.message);
  [page.status, page.body] = [200, { here: 'p' }];
  page.tell(kernel('awake'));
  await pass(1);
  assert.equal(page.asked, 2);
  assert.equal(page.histories.of('k').here, 'p');
  assert.equal(page.histories.trouble('k'), '');
});

test('a kernel that the server does not know is asked once, and again when it is there', async () => {
  const page = new Page();
  page.tell();
  [page.status, page.body] = [404, { message: 'Kernel k is not known.' }];
  page.histories.want('k');
  await pass(60);
  assert.equal(page.asked, 1);
  page.tell(kernel('awake'));
  await pass(1);
  assert.equal(page.asked, 2);
});

test('a kernel that is awake and cannot be asked just now is asked again', async () => {
  const page = new Page();
  page.tell(kernel('awake'));
  page.body = { message: 'Ask again.', reason: 'busy' };
  page.histories.want('k');
  await pass(11);
  assert.equal(page.asked, 3);
});

test('of a notebook that was closed during a question nothing is asked or kept', async () => {
  const page = new Page();
  page.tell(kernel('awake'));
  let answer;
  page.held = new Promise(resolve => (answer = resolve));
  const release = page.histories.want('k');
  await pass(1);
  release();
  answer();
  await pass(60);
  assert.equal(page.asked, 1);
  assert.equal(page.histories._known.size, 0);
});

test('who follows one notebook at a time is told of that in front alone, whoever else looks', async () => {
  const page = new Page();
  [page.status, page.body] = [200, { here: 'p' }];
  const follow = page.histories.follow();
  follow('k');
  follow('k');
  await pass(1);
  assert.equal(page.asked, 1);
  assert.equal(page.histories.of('k').here, 'p');
  follow('other');
  await pass(1);
  assert.equal(page.asked, 2);
  assert.equal(page.histories.of('k'), null);
  follow('');
  assert.equal(page.histories.of('other'), null);
});

test('a history is looked up also where nobody follows it', async () => {
  const page = new Page();
  await assert.rejects(page.histories.look('k'), { message: REFUSED.message });
  [page.status, page.body] = [200, { here: 'p' }];
  assert.equal((await page.histories.look('k')).here, 'p');
  assert.equal(page.histories.of('k'), null);
});
