// The status bar's item: one line of text. Text only changes when it differs, so that screen readers are not
// spoken to for nothing.
import { Widget } from '@lumino/widgets';

/** One line in the status bar. */
export class StatusItem extends Widget {
  constructor() {
    super({ node: document.createElement('span') });
    this.addClass('jp-replkernel-status');
    this.node.setAttribute('role', 'status');
    this.node.setAttribute('aria-live', 'polite');
  }

  /** Show `text`; `title` is the tooltip. */
  setText(text: string, title: string): void {
    if (this.node.textContent !== text) {
      this.node.textContent = text;
    }
    this.node.title = title;
  }
}
