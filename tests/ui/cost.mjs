// What a page costs its browser: frames, and what its main thread does. It knows a page and the live channel's messages.
const EXECUTION = {
  state: 'running',
  safety: 'pending',
  status: '',
  ename: '',
  count: null,
  replica: 'r1',
  host: 'host1',
  gpus: [],
  wanted: 0,
  model: '',
  position: null,
  estimate_s: null,
  trouble: '',
  unaudited: [],
  wished_at: null,
  granted_at: null,
  sent_at: null,
  ended_at: null,
  durable_at: null
};
const KERNEL = {
  state: 'busy',
  served: true,
  routed: true,
  cwd: '',
  began: 0,
  rested: 0,
  state_bytes: 0,
  rest: 'awake',
  answers: true,
  executor: 'r1',
  execution_count: 1,
  default_gpus: 0,
  scheduler_trouble: '',
  checkpoint_trouble: '',
  replicas: [],
  holdings: [],
  move: null
};
/** Watch each frame for some seconds, while a long list is scrolled from its top to its end if that is said. */
const frames = (page, seconds, scrolls) =>
  page.evaluate(
    async ([duration, list]) => {
      const scroll = list === '' ? null : document.querySelector(list);
      const long = [];
      const observer = new PerformanceObserver(found => {
        long.push(...found.getEntries().map(entry => entry.duration));
      });
      observer.observe({ entryTypes: ['longtask'] });
      const gaps = [];
      const began = performance.now();
      let last = began;
      while (last - began < duration * 1000) {
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        gaps.push(now - last);
        last = now;
        if (scroll !== null) {
          scroll.scrollTop = ((last - began) / (duration * 1000)) * scroll.scrollHeight;
        }
      }
      observer.disconnect();
      gaps.sort((one, other) => one - other);
      return {
        frames_per_second: (gaps.length / (last - began)) * 1000,
        gap_median_ms: gaps[Math.floor(gaps.length / 2)],
        gap_longest_ms: gaps.at(-1),
        long_tasks: long.length,
        long_task_longest_ms: Math.max(0, ...long)
      };
    },
    [seconds, scrolls]
  );

const DURATIONS = ['ScriptDuration', 'RecalcStyleDuration', 'LayoutDuration', 'TaskDuration'];

/** The longest that a task may take where no frame is to be late. */
const FRAME_MS = 1000 / 60;

/**
 * What the page's main thread does in some seconds, by Chromium's own trace of its tasks.
 *
 * Nothing here depends on how often the browser can show a frame, which without a screen and with few cores is rarely.
 */
async function tasks(page, seconds) {
  const browser = page.context().browser();
  await browser.startTracing(page, { categories: ['disabled-by-default-devtools.timeline'] });
  await page.waitForTimeout(seconds * 1000);
  const { traceEvents } = JSON.parse(String(await browser.stopTracing()));
  const threads = new Map();
  for (const { name, pid, tid, dur } of traceEvents) {
    if (name === 'RunTask' && dur !== undefined) {
      const thread = `${pid}/${tid}`;
      const known = threads.get(thread) ?? [];
      threads.set(thread, known);
      known.push(dur / 1000);
    }
  }
  const main = traceEvents
    .filter(({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain')
    .map(({ pid, tid }) => threads.get(`${pid}/${tid}`) ?? []);
  const sum = some => some.reduce((total, one) => total + one, 0);
  const busiest = main.sort((one, other) => sum(other) - sum(one))[0] ?? [];
  return {
    busy_percent: sum(busiest) / seconds / 10,
    late_tasks_per_second: busiest.filter(one => one > FRAME_MS).length / seconds,
    late_ms_per_second: sum(busiest.map(one => Math.max(0, one - FRAME_MS))) / seconds,
    task_longest_ms: Math.max(0, ...busiest)
  };
}

/** The same, with what the page's main thread did meanwhile, in milliseconds a second; after that, by its tasks. */
export async function cost(page, seconds, scrolls = '') {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable');
  const read = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    return new Map(metrics.map(({ name, value }) => [name, value]));
  };
  const before = await read();
  const seen = await frames(page, seconds, scrolls);
  const after = await read();
  const lasted = after.get('Timestamp') - before.get('Timestamp');
  const each = DURATIONS.map(name => [
    `${name.replace('Duration', '').toLowerCase()}_ms`,
    ((after.get(name) - before.get(name)) / lasted) * 1000
  ]);
  await devtools.detach();
  return { ...seen, ...Object.fromEntries(each), ...(await tasks(page, seconds)) };
}

/** Let a page hear by `channel` of a cluster and of 5 updates of each cell a second; return what that costs. */
export async function flood(page, channel, { hosts, cells, seconds, changed = 100, list = '' }) {
  const sessions = await page.evaluate(async () => (await fetch('/api/sessions')).json());
  const kernel = sessions.find(one => one.kernel.name === 'replkernel').kernel.id;
  const host = (number, busy) => ({
    name: `host${number}`,
    state: 'up',
    gpus: Array.from({ length: 8 }, (_, gpu) => ({
      uuid: `GPU-${number}-${gpu}`,
      model: 'H100',
      memory_bytes: 80e9,
      memory_used_bytes: busy * 80e9,
      utilisation: busy,
      state: ['idle', 'active', 'lingering'][(number + gpu) % 3],
      lease: ''
    }))
  });
  // Each update of a cell changes what its line shows: now it runs, now it is done, the times go on.
  const execution = (number, now, turn = 0) => ({
    ...EXECUTION,
    kernel_id: kernel,
    msg_id: `m${number}`,
    cell_id: `cell-${number + 1}`,
    accepted_at: now - 5,
    began_at: now - 4 - turn,
    ...((number + turn) % 2 === 0 ? {} : { state: 'done', status: 'ok', ended_at: now - 1 })
  });
  const clock = () => Date.now() / 1000;
  const many = (length, make) => Array.from({ length }, (_, number) => make(number));
  const told = { kernels: [{ ...KERNEL, kernel_id: kernel }], leases: [], queue: [], account: null };
  channel.send(
    JSON.stringify({
      type: 'snapshot',
      seq: 0,
      now: clock(),
      ...told,
      hosts: many(hosts, number => host(number, 0.5)),
      executions: many(cells, number => execution(number, clock())),
      scheduler: { url: 'http://127.0.0.1', trouble: '', waiting: 3, subscription_ratio: 1.25 }
    })
  );
  await page.waitForTimeout(1000);
  let seq = 0;
  const began = clock();
  const tell = () => {
    seq += 1;
    const executions = many(cells, number => execution(number, clock(), seq));
    const busy = many(changed, number => host((number + seq * changed) % hosts, Math.random()));
    channel.send(JSON.stringify({ type: 'changes', seq, now: clock(), executions, hosts: busy }));
  };
  const timer = setInterval(() => {
    while (seq < (clock() - began) * 5) {
      tell();
    }
  }, 50);
  const seen = await cost(page, seconds, list);
  clearInterval(timer);
  const each = seq / (clock() - began);
  const rows = await page.locator('.jp-replkernel-hosts > li').count();
  return { ...seen, rows, cells_per_second: cells * each, hosts_per_second: changed * each };
}
