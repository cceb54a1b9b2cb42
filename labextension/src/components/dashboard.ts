// The dashboard: the cluster's last day as charts, drawn by the Vega that JupyterLab carries. It asks only while it
// is seen, and draws anew only what has changed. Above them: who holds GPUs now, and who waits for some. What charts show is in a sentence each, too.
import { URLExt } from '@jupyterlab/coreutils';
import { MimeModel } from '@jupyterlab/rendermime';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ServerConnection } from '@jupyterlab/services';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { Message } from '@lumino/messaging';
import { Poll } from '@lumino/polling';
import { Panel, Widget } from '@lumino/widgets';
import * as React from 'react';

import type { IPast } from '../generated/live';
import { charts, nowOf } from '../models/charts';
import type { IChart, IInk } from '../models/charts';
import type { NameKernel } from '../models/cluster';
import type { LiveConnection } from '../models/connection';
import type { ITranslate } from '../models/line';
import type { ITouched, LiveStore } from '../models/live';
import { NowTables } from './nowTables';

const VEGA = 'application/vnd.vegalite.v5+json';
const PATH = 'replkernel/api/past';
const ASK_MS = 15_000;
/** So long after the last change of its width the tab is drawn anew. */
const RESIZED_MS = 200;
const ASK_MAX_MS = 60_000;
/** So often the times in the tables go on. */
const TICK_MS = 2_000;
/** In a narrower tab legends have a row for each line. */
const NARROW_PX = 480;

function element(tag: string): Widget {
  return new Widget({ node: document.createElement(tag) });
}

/** One chart with its head and its sentence. */
class ChartCard extends Panel {
  private readonly _head = element('h2');
  private readonly _sentence = element('p');
  private _drawn: Widget | null = null;
  private _told = '';

  constructor(private readonly _rendermime: IRenderMimeRegistry) {
    super();
    this.node.setAttribute('role', 'group');
    this.addClass('jp-replkernel-chart');
    this.addWidget(this._head);
    this.addWidget(this._sentence);
  }

  /** Have the next chart drawn even if it is the one that is shown. */
  forget(): void {
    this._told = '';
  }

  /** Say what a chart will show: words wait for no picture, not even for Vega's first. */
  say(chart: IChart): void {
    this._head.node.textContent = chart.title;
    this._sentence.node.textContent = chart.sentence;
  }

  /** Show a chart, if it is another than the one that is shown. */
  async draw(chart: IChart): Promise<void> {
    const told = JSON.stringify(chart.spec);
    if (told === this._told) {
      return;
    }
    this._told = told;
    const renderer = this._rendermime.createRenderer(VEGA);
    renderer.node.setAttribute('aria-hidden', 'true');
    this.addWidget(renderer);
    await renderer.renderModel(
      new MimeModel({
        data: { [VEGA]: chart.spec as ReadonlyPartialJSONObject },
        metadata: { [VEGA]: { embed_options: { actions: false, renderer: 'svg' } } }
      })
    );
    if (told !== this._told) {
      renderer.dispose(); // Another one was drawn meanwhile.
      return;
    }
    this._drawn?.dispose();
    this._drawn = renderer;
  }
}

/** What holds now, in tables. */
class Now extends ReactWidget {
  constructor(
    private readonly _store: LiveStore,
    private readonly _name: NameKernel,
    private readonly _trans: ITranslate
  ) {
    super();
    this.addClass('jp-replkernel-tables');
  }

  protected override render(): React.JSX.Element {
    const now = this._store.serverTime(Date.now() / 1000);
    return React.createElement(NowTables, { store: this._store, now, name: this._name, trans: this._trans });
  }
}

/** The tab. */
export class Dashboard extends Panel {
  private readonly _note = element('p');
  private readonly _tables: Now;
  private readonly _cards = new Map<string, ChartCard>();
  private readonly _poll: Poll;
  private _past: IPast | null = null;
  private _width = 0;
  private _resizing: ReturnType<typeof setTimeout> | undefined;
  private _release: (() => void) | null = null;
  private _ticking: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly _settings: ServerConnection.ISettings,
    private readonly _rendermime: IRenderMimeRegistry,
    private readonly _live: LiveConnection,
    name: NameKernel,
    private readonly _trans: ITranslate
  ) {
    super();
    this.addClass('jp-replkernel-dashboard');
    _live.changed.connect(this._onChanged, this);
    _live.interrupted.connect(this._showNow, this);
    this._tables = new Now(_live.store, name, _trans);
    this.node.setAttribute('role', 'region');
    this._note.node.setAttribute('role', 'status');
    this.addWidget(this._note);
    this.addWidget(this._tables);
    this._poll = new Poll({
      name: 'replkernel:past',
      auto: false,
      factory: () => this._ask(),
      frequency: { interval: ASK_MS, backoff: true, max: ASK_MAX_MS },
      standby: () => (this.isVisible ? 'when-hidden' : true)
    });
  }

  override dispose(): void {
    clearTimeout(this._resizing);
    clearInterval(this._ticking);
    this._release?.();
    this._release = null;
    this._poll.dispose();
    super.dispose();
  }

  /** Draw what is known anew, as for other colours. */
  async refresh(): Promise<void> {
    if (this.isVisible) {
      await this._poll.refresh();
    }
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._release ??= this._live.want();
    this._showNow();
    clearInterval(this._ticking);
    this._ticking = setInterval(() => {
      if (!document.hidden) {
        this._showNow();
      }
    }, TICK_MS);
    void this._poll.start();
    void this._poll.refresh();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    void this._poll.stop();
    clearInterval(this._ticking);
    this._release?.();
    this._release = null;
  }

  /** What holds now is told as the panel tells it, not when the past is asked for next. */
  private _onChanged(_: unknown, touched: ITouched): void {
    this._showNow();
    if (touched.cluster && this._past !== null && this._release !== null) {
      void this._draw(this._past);
    }
  }

  private _showNow(): void {
    if (this._release !== null) {
      this._tables.update();
    }
  }

  private async _ask(): Promise<void> {
    this._showNow(); // What is held costs more by and by.
    const url = URLExt.join(this._settings.baseUrl, PATH);
    const answer = await ServerConnection.makeRequest(url, {}, this._settings);
    if (!answer.ok) {
      const error = await ServerConnection.ResponseError.create(answer);
      this._note.node.textContent = error.message;
      throw error;
    }
    this._past = (await answer.json()) as IPast;
    await this._draw(this._past);
  }

  private async _draw(past: IPast): Promise<void> {
    const found = charts(past, nowOf(this._live.store), this._ink(), this._trans);
    this._note.node.textContent =
      found.length === 0
        ? this._trans('No figures yet: they begin with the first notebook on a replicated kernel.')
        : '';
    for (const chart of found) {
      let card = this._cards.get(chart.name);
      if (card === undefined) {
        card = new ChartCard(this._rendermime);
        this._cards.set(chart.name, card);
        this.addWidget(card); // All of them before the first is drawn: a chart has the width of its card then.
      }
      card.say(chart);
    }
    this._width = this.node.clientWidth;
    for (const chart of found) {
      await this._cards.get(chart.name)?.draw(chart);
    }
  }

  /** Draw all anew where they have another width: Vega follows the window alone, not a panel beside. */
  protected override onResize(message: Widget.ResizeMessage): void {
    super.onResize(message);
    clearTimeout(this._resizing);
    this._resizing = setTimeout(() => {
      if (this._past !== null && this.isVisible && this.node.clientWidth !== this._width) {
        this._cards.forEach(card => {
          card.forget();
        });
        void this._draw(this._past);
      }
    }, RESIZED_MS);
  }

  /** The colours of the page's theme. */
  private _ink(): IInk {
    const style = getComputedStyle(this.node);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    return {
      text: colour('--jp-ui-font-color1'),
      grid: colour('--jp-border-color2'),
      narrow: this.node.clientWidth < NARROW_PX,
      lines: [colour('--jp-ui-font-color2'), colour('--jp-brand-color1'), colour('--jp-warn-color1')]
    };
  }
}
