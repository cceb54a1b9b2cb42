// A real browser on JupyterLab that does what it is told: one JSON object a line comes in, one goes out.
// Each command names a `page`; what people see is read from the page, never from JupyterLab's own objects.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

import { chromium } from 'playwright-core';

import { cost, flood } from './cost.mjs';
import { eyes } from './eyes.mjs';

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

/** Controls and texts of ours that lie over each other, as far as they are seen. */
const overlapping = page =>
  page.evaluate(() => {
    const says = node =>
      [...node.childNodes].some(one => one.nodeType === 3 && one.textContent.trim() !== '');
    const seen = node => {
      let { left, right, top, bottom } = node.getBoundingClientRect();
      for (let around = node.parentElement; around !== null; around = around.parentElement) {
        const box = around.getBoundingClientRect();
        if (getComputedStyle(around).overflow !== 'visible') {
          [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
          [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
        }
      }
      return { node, left, right, top, bottom };
    };
    const boxes = [...document.querySelectorAll('[class*="jp-replkernel"]')]
      .flatMap(node => [node, ...node.querySelectorAll('*')])
      .filter(
        (node, at, all) => all.indexOf(node) === at && !node.closest('.jp-replkernel-spoken, svg, option')
      )
      .filter(node =>
        node.checkVisibility({
          visibilityProperty: true,
          opacityProperty: true
        })
      )
      .filter(node => /^(button|input|select)$/.test(node.localName) || says(node))
      .map(seen)
      .filter(box => box.right - box.left > 1 && box.bottom - box.top > 1);
    return boxes.flatMap((one, at) =>
      boxes
        .slice(at + 1)
        .filter(other => !one.node.contains(other.node) && !other.node.contains(one.node))
        .filter(
          other =>
            Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2 &&
            Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 2
        )
        .map(other => `${one.node.textContent} | ${other.node.textContent}`)
    );
  });

/** The page's end of the live channel, where a page was opened with `deaf`; `refused`: it is closed at once. */
let channel = null;

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const commands = {
  ...eyes(pages, cell),
  /** Have the same person open another tab at a JupyterHub, and start the server there if it is down. */
  async tab({ page: name, other, url }) {
    const page = await pages.get(name).page.context().newPage();
    pages.set(other, {
      page,
      notes: { asked: [], errors: [], requests: 0, heard: 0 }
    });
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
  async overlapping({ page: name }) {
    return overlapping(pages.get(name).page);
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
  /** How far a part of the page is scrolled down. */
  async scrolled({ page: name, query }) {
    return pages
      .get(name)
      .page.locator(query)
      .first()
      .evaluate(node => node.scrollTop);
  },
  async press({ page: name, query, text }) {
    const { page } = pages.get(name);
    await page
      .locator(query, text === undefined ? {} : { hasText: text })
      .first()
      .click();
  },
  /** Hit keys one after another, as `Shift+Tab`, then write a text where the focus is. */
  async keys({ page: name, keys = [], text = '' }) {
    const { page } = pages.get(name);
    for (const key of keys) {
      await page.keyboard.press(key);
    }
    await page.keyboard.type(text);
  },
  /** Return what has the focus: its role or tag, and its text. */
  async focused({ page: name }) {
    return pages.get(name).page.evaluate(() => {
      const node = document.activeElement;
      const active = document.getElementById(node?.getAttribute('aria-activedescendant') ?? '');
      const text = (active ?? node)?.textContent?.trim() ?? '';
      const what = node?.getAttribute('role') ?? node?.localName ?? '';
      return [what, text === '' ? what : text];
    });
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
      Object.defineProperty(document, 'hidden', {
        value: now,
        configurable: true
      });
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
  /** Have the page read from right to left, or from left to right. */
  async direction({ page: name, to }) {
    await pages.get(name).page.evaluate(now => (document.documentElement.dir = now), to);
  },
  /** What moves by itself in what is ours. */
  async moving({ page: name }) {
    return pages.get(name).page.evaluate(() =>
      document
        .getAnimations()
        .map(one => [one.effect, one.effect?.getComputedTiming().duration])
        .filter(([effect, lasts]) => effect?.target?.closest('[class*="jp-replkernel"]') && lasts > 0)
        .map(([effect]) => effect.target.className)
    );
  },
  /** What a screen reader reads of a part of the page, in its order: roles with their names. */
  async tree({ page: name, query }) {
    const { page } = pages.get(name);
    const devtools = await page.context().newCDPSession(page);
    await devtools.send('Accessibility.enable');
    const { root } = await devtools.send('DOM.getDocument', { depth: 0 });
    const { nodeId } = await devtools.send('DOM.querySelector', {
      nodeId: root.nodeId,
      selector: query
    });
    const { nodes } = await devtools.send('Accessibility.queryAXTree', {
      nodeId
    });
    await devtools.detach();
    return nodes
      .filter(node => !node.ignored && !['generic', 'InlineTextBox'].includes(node.role?.value))
      .map(node => [node.role?.value ?? '', node.name?.value ?? '']);
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
  async flood({ page: name, ...wanted }) {
    return flood(pages.get(name).page, channel, wanted);
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
      const { violations } = await window.axe.run(selector, {
        resultTypes: ['violations']
      });
      return violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.html).join(' ')}`);
    }, query);
  },
  /** Open a notebook; `zoom` 2 is what a person sees who zooms to 200 %: half as many, twice as large CSS pixels. */
  async open({ page: name, url, cells, width = 1280, height = 1000, zoom = 1, deaf = false, user = '' }) {
    const viewport = { width: width / zoom, height: height / zoom };
    const page = await (await browser.newContext({ viewport, deviceScaleFactor: zoom })).newPage();
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
      page.locator('.jp-Dialog', {
        hasText: /Server Connection Error|Server unavailable/
      }),
      async dialog => {
        await dialog.getByRole('button').last().click();
      }
    );
    // Where nobody has refused news of Jupyter before, their offer stands in the way.
    await page.addLocatorHandler(page.getByRole('button', { name: 'No', exact: true }), async offer => {
      await offer.click();
    });
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
  /** Close all pages, as a person who goes. */
  async leave() {
    await Promise.all(browser.contexts().map(context => context.close()));
    pages.clear();
    channel = null;
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
    await commands.menu({
      page: name,
      menu: 'Edit',
      id: 'editmenu:clear-current'
    });
  },
  /** Choose an entry of the menu bar. */
  async menu({ page: name, menu, id }) {
    const { page } = pages.get(name);
    await page.locator('.lm-MenuBar-item', { hasText: menu }).click();
    await page.locator(`.lm-Menu-item[data-command="${id}"]`).click();
  },
  async save({ page: name }) {
    const { page } = pages.get(name);
    await page.keyboard.press('Control+s');
    await page
      .locator('.lm-DockPanel-tabBar .jp-mod-dirty')
      .waitFor({ state: 'detached', timeout: PATIENCE });
  },
  async value({ page: name, query }) {
    return pages.get(name).page.locator(query).first().inputValue();
  },
  async cells({ page: name }) {
    return shown(pages.get(name).page);
  },
  async state({ page: name }) {
    const { page, notes } = pages.get(name);
    return {
      ...notes,
      dirty: (await page.locator('.lm-DockPanel-tabBar .jp-mod-dirty').count()) > 0
    };
  },
  /** Take a picture of a page; `query`: of that part of it. */
  async screenshot({ page: name, path, query }) {
    const page = pages.get(name)?.page;
    await page?.waitForTimeout(700); // What moves in comes to rest.
    await (query === undefined ? page : page?.locator(query).first())?.screenshot({ path });
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
