// When the page gives a WebSocket up, and asks instead. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

import services from '@jupyterlab/services';

import { pass, playTime } from './played.mjs';

register('./endings.mjs', import.meta.url);
const SETTINGS = services.ServerConnection.makeSettings({ baseUrl: 'http://host/', wsUrl: 'ws://host/' });
globalThis.document = { hidden: false, cookie: '', addEventListener: () => undefined };
const { LiveConnection } = await import('../lib/models/connection.js');

const SNAPSHOT = { type: 'snapshot', seq: 1, now: 0, kernels: [], executions: [], hosts: [] };

/** A page whose sockets get through to nobody: no event ever comes, unless a test plays one. */
class Page {
  sockets = [];
  asked = 0;

  constructor() {
    const { sockets } = this;
    this.connection = new LiveConnection({
      ...SETTINGS,
      WebSocket: class {
        closed = false;

        constructor() {
          sockets.push(this);
        }

        close() {
          this.closed = true;
        }
      },
      fetch: async () => {
        this.asked += 1;
        return new Response(JSON.stringify(SNAPSHOT));
      }
    });
  }
}

playTime();

test('a socket that never says a word is given up, and after three of them the server is asked', async () => {
  const page = new Page();
  const release = page.connection.want();
  await pass(19);
  assert.equal(page.sockets.length, 1);
  assert.equal(page.sockets[0].closed, false);
  await pass(60);
  assert.equal(page.sockets.length, 3);
  assert.ok(page.sockets.every(socket => socket.closed));
  assert.ok(page.asked > 0);
  assert.ok(page.connection.store.current);
  release();
});

test('a socket that has said something and falls silent is followed by another one', async () => {
  const page = new Page();
  const release = page.connection.want();
  for (let one = 0; one < 4; one += 1) {
    page.sockets[one].onmessage({ data: JSON.stringify(SNAPSHOT) });
    await pass(22);
    assert.ok(page.sockets[one].closed);
  }
  assert.equal(page.asked, 0);
  release();
});

test('a page that listens no more has no socket to give up', async () => {
  const page = new Page();
  page.connection.want()();
  await pass(30);
  assert.equal(page.sockets.length, 1);
  assert.ok(page.sockets[0].closed);
});
