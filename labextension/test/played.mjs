// Time that a test plays: timers ring when it lets seconds pass, and what they lead to has its turns.
import { mock, test } from 'node:test';

/** Have the timers of this file's tests be played. */
export function playTime() {
  test.beforeEach(() => mock.timers.enable({ apis: ['setTimeout'] }));
  test.afterEach(() => mock.timers.reset());
}

export async function pass(seconds) {
  for (let second = 0; second < seconds; second += 1) {
    mock.timers.tick(1_000);
    for (let turn = 0; turn < 5; turn += 1) {
      await new Promise(resolve => setImmediate(resolve));
    }
  }
}
