// A real browser on JupyterLab that does what it is told: one JSON object a line comes in, one goes out.
// Each command names a `page`; what people see is read from the page, never from JupyterLab's own objects.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

import { chromium } from 'playwright-core';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync'
];
const PANEL = '.jp-NotebookPanel:not(.lm-mod-hidden)';
const PATIENCE = 60000;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [...FLAGS, ...(process.env.CHROMIUM_FLAGS?.split(' ') ?? [])]
});
const pages = new Map();

/** Note which control messages a page sends, and its errors. */
function listen(page, notes) {
  page.on('pageerror', error => notes.errors.push(error.stack ?? String(error)));
  page.on('request', request => {
    if (/\/replkernel\/api\//.test(request.url())) {
      notes.requests += 1;
    }
  });
  page.on('websocket', socket => {
    if (/\/replkernel\/api\//.test(socket.url())) {
      notes.requests += 1;
      socket.on('framereceived', () => (notes.heard += 1));
    }
    socket.on('framesent', ({ payload }) => {
      const [found] = String(payload).match(/"msg_type":\s*"replkernel_[a-z_]+"/) ?? [];
      if (found !== undefined) {
        notes.asked.push(found.split('"')[3]);
      }
    });
  });
}

const cell = (page, number) => page.locator(`${PANEL} .jp-CodeCell`).nth(number - 1);

const shown = page =>
  page.locator(`${PANEL} .jp-CodeCell`).evaluateAll(cells =>
    cells.map(node => ({
      prompt: node.querySelector('.jp-InputPrompt')?.textContent?.trim() ?? '',
      outputs: [...node.querySelectorAll('.jp-OutputArea-output')].map(output => output.textContent ?? '')
    }))
  );

async function notebookShown(page, cells) {
  await page
    .locator(`${PANEL} .jp-CodeCell .cm-content`)
    .nth(cells - 1)
    .waitFor({ timeout: PATIENCE });
  // The offer of news comes late or not at all, and only stands in the way.
  await page
    .getByRole('button', { name: 'No', exact: true })
    .click({ timeout: 1500 })
    .catch(() => undefined);
}

/** Start a user's server by the button that a JupyterHub shows, unless it is up. */
async function serverStarted(page) {
  const lab = /\/user\/[^/]+\/lab/;
  const start = page.locator('#start');
  const first = await Promise.race([
    page.waitForURL(url => lab.test(url.pathname) && !url.pathname.startsWith('/hub/'), {
      timeout: PATIENCE
    }),
    start.waitFor({ timeout: PATIENCE }).then(() => 'down')
  ]);
  if (first === 'down') {
    await start.click();
    await page.waitForURL(url => lab.test(url.pathname) && !url.pathname.startsWith('/hub/'), {
      timeout: PATIENCE
    });
  }
}

/** Log in at a JupyterHub without passwords, and have the user's server started. */
async function logIn(page, user) {
  await page.locator('#username_input').fill(user);
  await page.locator('#password_input').fill('any');
  await page.locator('#login_submit').click();
  await page.waitForURL(/user/, { timeout: PATIENCE });
  await serverStarted(page);
}

const LINE = '.jp-replkernel-line';

/** The text of what is shown under each code cell, and empty where there is nothing. */
const lines = page =>
  page.locator(`${PANEL} .jp-CodeCell`).evaluateAll(
    (cells, query) =>
      cells.map(node => {
        const line = node.querySelector(query);
        return line === null || line.offsetParent === null ? '' : line.innerText.replace(/\s+/g, ' ').trim();
      }),
    LINE
  );

/** What is cut off, lies outside of its parent's box, or of the window's. */
const clipped = page =>
  page.locator('[class*="jp-replkernel"]:visible').evaluateAll(nodes =>
    nodes
      .filter(node => !node.closest('.jp-replkernel-spoken, svg'))
      .filter(node => {
        const box = node.getBoundingClientRect();
        const around = node.closest('.jp-replkernel-scroll') ?? document.documentElement;
        return (
          box.right > around.getBoundingClientRect().right + 1 || node.scrollWidth > node.clientWidth + 1
        );
      })
      .filter(node => getComputedStyle(node).display !== 'inline')
      .map(node => `${node.className}: ${node.textContent}`)
  );

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
/** The page's end of the live channel, where a page was opened with `deaf`; `refused`: it is closed at once. */
let channel = null;

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

/** The same, with what the page's main thread did meanwhile, in milliseconds a second. */
async function cost(page, seconds, scrolls = '') {
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
  return { ...seen, ...Object.fromEntries(each) };
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const commands = {
  /** Have the same person open another tab at a JupyterHub, and start the server there if it is down. */
  async tab({ page: name, other, url }) {
    const page = await pages.get(name).page.context().newPage();
    pages.set(other, { page, notes: { asked: [], errors: [], requests: 0, heard: 0 } });
    await page.goto(url);
    await serverStarted(page);
    await page.locator('#jp-main-statusbar').waitFor({ timeout: PATIENCE });
  },
  async lines({ page: name }) {
    return lines(pages.get(name).page);
  },
  async clipped({ page: name }) {
    return clipped(pages.get(name).page);
  },
  async toggle({ page: name, cell: number }) {
    const button = cell(pages.get(name).page, number).locator('.jp-replkernel-toggle');
    // JupyterLab may take the focus away between the two, when a connection has just come back.
    for (let tries = 0; tries < 5 && (await button.getAttribute('aria-expanded')) !== 'true'; tries++) {
      await button.focus();
      await button.press('Enter');
      await pages.get(name).page.waitForTimeout(500);
    }
  },
  async text({ page: name, query }) {
    const found = pages.get(name).page.locator(query).filter({ visible: true });
    return (await found.allInnerTexts()).map(text => text.replace(/\s+/g, ' ').trim());
  },
  async press({ page: name, query, text }) {
    const { page } = pages.get(name);
    await page
      .locator(query, text === undefined ? {} : { hasText: text })
      .first()
      .click();
  },
  /** Have a command of the palette carried out. */
  async command({ page: name, id, text }) {
    const { page } = pages.get(name);
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+Shift+C');
    await page.locator('.lm-CommandPalette-input').fill(text);
    await page.locator(`.lm-CommandPalette-item[data-command="${id}"]`).first().click();
  },
  /** Have the page take itself for hidden, or seen again. */
  async hide({ page: name, hidden }) {
    await pages.get(name).page.evaluate(now => {
      Object.defineProperty(document, 'hidden', { value: now, configurable: true });
      Object.defineProperty(document, 'visibilityState', {
        value: now ? 'hidden' : 'visible',
        configurable: true
      });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
  },
  /** How the system shows colours and motion. */
  async media({ page: name, ...media }) {
    await pages.get(name).page.emulateMedia(media);
  },
  async hover({ page: name, query, text }) {
    const { page } = pages.get(name);
    await page
      .locator(query, text === undefined ? {} : { hasText: text })
      .first()
      .hover();
  },
  async choose({ page: name, query, value }) {
    await pages.get(name).page.locator(query).first().selectOption(value);
  },
  /** What a page costs as it is; `list`: while that is scrolled. */
  async cost({ page: name, seconds, list = '' }) {
    return cost(pages.get(name).page, seconds, list);
  },
  /** Let a page hear of a cluster and of many cells instead of the server; return what that costs. */
  async flood({ page: name, hosts, cells, seconds, changed = 100, list = '' }) {
    const { page } = pages.get(name);
    const kernel = await page.evaluate(
      async () => (await (await fetch('/api/sessions')).json())[0].kernel.id
    );
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
  },
  async theme({ page: name, theme }) {
    const { page } = pages.get(name);
    await page.locator('.lm-MenuBar-item', { hasText: 'Settings' }).click();
    await page.locator('.lm-Menu-item', { hasText: 'Theme' }).first().hover();
    await page.locator('.lm-Menu-item', { hasText: new RegExp(`^${theme}$`) }).click();
    await page.waitForTimeout(800);
  },
  async axe({ page: name, query }) {
    const { page } = pages.get(name);
    await page.evaluate(axeSource);
    return page.evaluate(async selector => {
      const { violations } = await window.axe.run(selector, { resultTypes: ['violations'] });
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.html).join(' ')}`);
    }, query);
  },
  async open({ page: name, url, cells, height = 1000, deaf = false, user = '' }) {
    const page = await (await browser.newContext({ viewport: { width: 1280, height } })).newPage();
    const notes = { asked: [], errors: [], requests: 0, heard: 0 };
    pages.set(name, { page, notes });
    listen(page, notes);
    if (deaf) {
      await page.routeWebSocket(/replkernel\/api\/live\/channel/, socket => {
        channel = socket;
        if (deaf === 'refused') {
          void socket.close();
        }
      });
    }
    // JupyterLab says so when the server is gone; a person reads it and closes it.
    await page.addLocatorHandler(
      page.locator('.jp-Dialog', { hasText: /Server Connection Error|Server unavailable/ }),
      async dialog => {
        await dialog.getByRole('button').last().click();
      }
    );
    await page.goto(url);
    if (user !== '') {
      await logIn(page, user);
    }
    await notebookShown(page, cells);
  },
  async reload({ page: name, cells }) {
    const { page } = pages.get(name);
    await page.evaluate(() =>
      window.addEventListener('beforeunload', e => e.stopImmediatePropagation(), true)
    );
    page.once('dialog', dialog => dialog.accept());
    await page.reload();
    await notebookShown(page, cells);
  },
  async close({ page: name }) {
    await pages.get(name).page.context().close();
    pages.delete(name);
  },
  async run({ page: name, cell: number, kernel }) {
    const { page } = pages.get(name);
    // Before the session is there, JupyterLab drops what it is told to run.
    if (kernel !== undefined) {
      await page
        .locator('#jp-main-statusbar', { hasText: `${kernel} | Idle` })
        .waitFor({ timeout: PATIENCE });
    }
    await cell(page, number).locator('.cm-content').click();
    await page.keyboard.press('Shift+Enter');
  },
  async clear({ page: name, cell: number }) {
    const { page } = pages.get(name);
    await cell(page, number).locator('.cm-content').click();
    await page.keyboard.press('Escape');
    await page.locator('.lm-MenuBar-item', { hasText: 'Edit' }).click();
    await page.locator('.lm-Menu-item[data-command="editmenu:clear-current"]').click();
  },
  async save({ page: name }) {
    const { page } = pages.get(name);
    await page.keyboard.press('Control+s');
    await page
      .locator('.lm-DockPanel-tabBar .jp-mod-dirty')
      .waitFor({ state: 'detached', timeout: PATIENCE });
  },
  async cells({ page: name }) {
    return shown(pages.get(name).page);
  },
  async state({ page: name }) {
    const { page, notes } = pages.get(name);
    return { ...notes, dirty: (await page.locator('.lm-DockPanel-tabBar .jp-mod-dirty').count()) > 0 };
  },
  async screenshot({ page: name, path }) {
    await pages.get(name)?.page.waitForTimeout(700); // What moves in comes to rest.
    await pages.get(name)?.page.screenshot({ path });
  }
};

console.log(JSON.stringify({ answer: 'ready' }));
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: (await commands[command.do](command)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ failure: String(error) }));
  }
}
await browser.close();
