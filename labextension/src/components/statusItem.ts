// The status bar's item: one line of text, and a mark behind it. The text only changes when it differs, so that
// screen readers are not spoken to for nothing; the mark is not spoken at all, the notebook itself tells of it.
import { Widget } from '@lumino/widgets';

/** One line in the status bar. */
export class StatusItem extends Widget {
  private readonly _text = document.createElement('span');
  private readonly _mark = document.createElement('span');

  constructor() {
    super({ node: document.createElement('span') });
    this.addClass('jp-replkernel-status');
    this._text.setAttribute('role', 'status');
    this._text.setAttribute('aria-live', 'polite');
    this.node.append(this._text, this._mark);
  }

  /** Show `text` with `mark` behind it; `title` is the tooltip. */
  setText(text: string, mark: string, title: string): void {
    if (this._text.textContent !== text) {
      this._text.textContent = text;
    }
    this._mark.textContent = mark === '' ? '' : ` · ${mark}`;
    this.node.title = title;
  }
}
