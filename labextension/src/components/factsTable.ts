// The dialog's body: a table of labels and texts. User data reaches the page as text, never as markup.
import { Widget } from '@lumino/widgets';

import type { Row } from '../models/facts';

/** A two-column table of `rows`, below one sentence. */
export class FactsTable extends Widget {
  constructor(sentence: string, rows: readonly Row[]) {
    super();
    const paragraph = document.createElement('p');
    paragraph.textContent = sentence;
    const table = document.createElement('table');
    table.className = 'jp-replkernel-facts';
    for (const [label, text] of rows) {
      const row = table.insertRow();
      const head = document.createElement('th');
      head.scope = 'row';
      head.textContent = label;
      row.append(head);
      row.insertCell().textContent = text;
    }
    this.node.append(paragraph, table);
  }
}
