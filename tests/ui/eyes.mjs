// What a person sees at a glance: colours, what lies over what, what is within the window, and whether a panel contradicts itself.
const LOOK_MS = 100;

/** The panel's counts beside what they count, each distinct look once; it goes on until it is read. */
const watch = (page, panel) =>
  page.evaluate(
    ([query, every]) => {
      const looks = (window.replkernelLooks = new Set());
      const look = () => {
        const node = document.querySelector(query);
        const yours = [...(node?.querySelectorAll('.jp-replkernel-gpu') ?? [])];
        looks.add(
          JSON.stringify({
            text: node?.innerText.replace(/\s+/g, ' ') ?? '',
            queue: node?.querySelectorAll('.jp-replkernel-queue > li').length ?? 0,
            yours: yours.filter(box => /\nyours: /.test(box.title)).length,
            status: document.querySelector('.jp-replkernel-status')?.innerText ?? '',
            notices: [...document.querySelectorAll('.Toastify__toast')].map(one => one.innerText)
          })
        );
      };
      window.replkernelWatch = setInterval(look, every);
    },
    [panel, LOOK_MS]
  );

/** What a page's eyes can be asked. */
export const eyes = (pages, cell) => ({
  /** Begin to look at the panel ten times a second. */
  async watch({ page: name, panel }) {
    await watch(pages.get(name).page, panel);
  },
  /** Return all that was seen since. */
  async watched({ page: name }) {
    return pages.get(name).page.evaluate(() => {
      clearInterval(window.replkernelWatch);
      return [...window.replkernelLooks].map(look => JSON.parse(look));
    });
  },
  /** The colours of a part of the page, as red, green and blue. */
  async colour({ page: name, query }) {
    const text = await pages
      .get(name)
      .page.locator(query)
      .first()
      .evaluate(node => getComputedStyle(node).color);
    return text
      .match(/[\d.]+/g)
      .slice(0, 3)
      .map(Number);
  },
  /** The texts that have no room. */
  async cut({ page: name, query }) {
    return pages
      .get(name)
      .page.locator(query)
      .evaluateAll(nodes =>
        nodes.filter(node => node.scrollWidth > node.clientWidth).map(node => node.innerText)
      );
  },
  /** What of a part of the page lies within another one. */
  async covered({ page: name, over, under }) {
    return pages.get(name).page.evaluate(
      ([above, below]) => {
        const boxes = query =>
          [...document.querySelectorAll(query)].map(node => [node, node.getBoundingClientRect()]);
        return boxes(above)
          .filter(([, one]) =>
            boxes(below).some(
              ([, other]) =>
                Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 &&
                Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1
            )
          )
          .map(([node]) => node.innerText);
      },
      [over, under]
    );
  },
  /** Scroll a cell's beginning to the window's top; return whether its line can be seen and clicked there. */
  async lineInSight({ page: name, cell: number }) {
    const { page } = pages.get(name);
    await cell(page, number).evaluate(node => node.scrollIntoView({ block: 'start' }));
    return cell(page, number)
      .locator('.jp-replkernel-line')
      .evaluate(async node => {
        await new Promise(requestAnimationFrame);
        const { left, top, height } = node.getBoundingClientRect();
        return node.contains(document.elementFromPoint(left + 20, top + height / 2));
      });
  }
});
