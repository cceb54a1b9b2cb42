// How much room notices leave for what stands at the window's right edge. Pure.

/** Notices need so much room themselves, in the page's em. */
const NOTICE_EM = 25;

/** Tell how many pixels notices move to the left for a panel; none where they would leave the window, or it is elsewhere. */
export function besidePx(panel: { left: number; right: number }, windowPx: number, emPx: number): number {
  const { left, right } = panel;
  const atTheRight = (left + right) / 2 > windowPx / 2;
  return atTheRight && left >= NOTICE_EM * emPx ? windowPx - left : 0;
}
