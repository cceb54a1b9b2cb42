// Which lines of a notebook are seen: these are brought up to date at once, others a moment later.
// Law: what stands in the page holds, whoever reads it there; many changes of what nobody sees are one.
import type { CellLine } from '../components/cellLine';

/** So long after the first change that nobody sees the lines are brought up to date all the same. */
const UNSEEN_MS = 1_000;

/** The lines of one notebook, by whether they are seen. */
export class LinesInSight {
  private readonly _lines = new Map<Element, CellLine>();
  private readonly _seen = new Set<CellLine>();
  private readonly _late = new Set<CellLine>();
  private readonly _observer: IntersectionObserver;
  private _timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    this._observer = new IntersectionObserver(entries => {
      this._onSeen(entries);
    });
  }

  /** Watch a line. */
  add(line: CellLine): void {
    this._lines.set(line.node, line);
    this._observer.observe(line.node);
  }

  remove(line: CellLine): void {
    this._observer.unobserve(line.node);
    this._lines.delete(line.node);
    this._seen.delete(line);
    this._late.delete(line);
  }

  has(line: CellLine): boolean {
    return this._seen.has(line);
  }

  /** Bring a line up to date: at once if it is seen, or shows nothing now, as after a restart of the kernel. */
  update(line: CellLine): void {
    if (this._seen.has(line) || line.isHidden) {
      this._late.delete(line);
      line.update();
      return;
    }
    this._late.add(line);
    this._timer ??= setTimeout(() => {
      this._timer = undefined;
      this._late.forEach(one => {
        one.update();
      });
      this._late.clear();
    }, UNSEEN_MS);
  }

  dispose(): void {
    clearTimeout(this._timer);
    this._observer.disconnect();
  }

  private _onSeen(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of entries) {
      const line = this._lines.get(target);
      if (line !== undefined) {
        this._seen[isIntersecting ? 'add' : 'delete'](line);
        if (isIntersecting) {
          this.update(line);
        }
      }
    }
  }
}
