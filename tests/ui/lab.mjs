// Drives JupyterLab in a real browser: one notebook on the kernel chosen in the launcher, one on the stock kernel.
// Prints one line of JSON with what a person would see. Usage: node lab.mjs URL TOKEN SCREENSHOT_DIR
import { chromium } from 'playwright-core';

const [url, token, shots] = process.argv.slice(2);
const STATUS = '.jp-replkernel-status';
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync'
];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: FLAGS
});
const seen = { errors: [] };

async function launch(page, kernel, card = kernel) {
  await page.locator('.jp-LauncherCard', { hasText: card }).first().click();
  const panel = page.locator('.jp-NotebookPanel:not(.lm-mod-hidden)');
  await panel.locator('.jp-Cell .cm-content').first().waitFor();
  // Before the session is there, JupyterLab drops what it is told to run.
  await page.locator('#jp-main-statusbar', { hasText: `${kernel} | Idle` }).waitFor({ timeout: 60000 });
  return panel;
}

async function run(page, panel, number, code) {
  const cell = panel.locator('.jp-CodeCell').nth(number - 1);
  await cell.locator('.cm-content').click();
  await page.keyboard.insertText(code);
  await page.keyboard.press('Shift+Enter');
  const output = cell.locator('.jp-OutputArea-output').first();
  await output.waitFor({ timeout: 60000 });
  return (await output.innerText()).trim();
}

try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  page.on('pageerror', error => seen.errors.push(String(error)));
  await page.goto(`${url}lab?token=${token}`);
  await page.locator('.jp-LauncherCard').first().waitFor({ timeout: 60000 });
  seen.cards = await page.locator('.jp-LauncherCard-label').allInnerTexts();
  await page.screenshot({ path: `${shots}/launcher.png` });

  const replicated = await launch(page, 'Python 3 (replicated)', 'Notebook with GPUs');
  seen.first = await run(page, replicated, 1, 'values = [1, 2, 3]; print("sum", sum(values))');
  seen.second = await run(page, replicated, 2, 'values.append(4); values');
  await page.locator(STATUS, { hasText: 'r' }).waitFor({ timeout: 10000 });
  await page.waitForFunction(
    query => document.querySelector(query)?.textContent?.startsWith('Replica r'),
    STATUS
  );
  seen.status = await page.locator(STATUS).innerText();
  await page.screenshot({ path: `${shots}/notebook.png` });

  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+Shift+C');
  await page.locator('.lm-CommandPalette-input').fill('Replicated kernel: show status');
  await page.locator('.lm-CommandPalette-item[data-command="replkernel:show-status"]').click();
  const dialog = page.locator('.jp-Dialog');
  await dialog.locator('.jp-replkernel-facts').waitFor();
  seen.dialog = await dialog.locator('.jp-replkernel-facts th').allInnerTexts();
  await page.screenshot({ path: `${shots}/dialog.png` });
  await dialog.locator('.jp-mod-accept').click();

  await page.keyboard.press('Control+Shift+L');
  await page.locator('.jp-Launcher:visible').first().waitFor();
  const stock = await launch(page, 'Python 3 (ipykernel)');
  seen.stock = await run(page, stock, 1, 'print("stock")');
  await page.waitForTimeout(500);
  seen.statusOnStock = await page.locator(STATUS).isVisible();
} catch (error) {
  seen.failure = String(error);
} finally {
  for (const [index, page] of browser
    .contexts()
    .flatMap(context => context.pages())
    .entries()) {
    await page.screenshot({ path: `${shots}/last-${index}.png` }).catch(() => undefined);
  }
  await browser.close();
}
console.log(JSON.stringify(seen));
