// The lines of one notebook: a widget in the layout of each code cell that has run on a replicated kernel.
// A driver: signals, one timer, the live region. Law: the notebook's file is not touched; a notebook on another
// kernel gets nothing, and costs nothing.
import { Notification } from '@jupyterlab/apputils';
import type { Cell, ICellModel, ICodeCellModel } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import type { PanelLayout } from '@lumino/widgets';
import { Signal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import type { ILineSource } from '../components/cellLine';
import { CellLine } from '../components/cellLine';
import type { IExecution, IPin } from '../generated/live';
import type { ISettings } from '../tokens';
import { cancel } from './actions';
import { gpuLine, readCellRequest, requestInWords, writeCellRequest } from './cellRequest';
import type { ICellRequest } from './cellRequest';
import { holder, mostGpus } from './cluster';
import type { NameKernel } from './cluster';
import type { LiveConnection } from './connection';
import { textDigest } from './digest';
import { bannerInWords } from './doubt';
import type { Histories } from './histories';
import { isUndone } from './history';
import { LinesInSight } from './inSight';
import { isSafe } from './kernelMark';
import type { ITranslate } from './line';
import { canCancel, describeLine } from './line';
import type { ITouched } from './live';
import { LineMemory } from './remembered';

const TICK_MS = 1_000;
/** So long after the last key it is looked whether a cell still holds the code that ran. */
const EDITED_MS = 500;
/** People are told of no more than one thing in this time. */
const SPEAK_MS = 1_500;
const ERROR_SHOWN_MS = 10_000;
/** In a narrower notebook a line has several rows, and does not stay at the window's edge. */
const NARROW_PX = 560;

/** The lines under the cells of one notebook. */
export class NotebookLines implements ILineSource {
  readonly opened = new Set<string>();
  private readonly _lines = new Map<Cell, CellLine>();
  private readonly _live: HTMLElement;
  private readonly _banner: Widget;
  private readonly _inSight = new LinesInSight();
  private readonly _widths = new ResizeObserver(entries => {
    const narrow = entries.some(({ contentRect }) => contentRect.width < NARROW_PX);
    this._panel.toggleClass('jp-replkernel-mod-narrow', narrow);
  });
  private _release: (() => void) | null = null;
  private readonly _follow: (kernelId: string) => void;
  private readonly _memory: LineMemory;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _speaking: ReturnType<typeof setTimeout> | undefined;
  private _said = '';
  /** Cells by their ids, as last looked up. */
  private _found = new Map<string, Cell>();
  private readonly _digests = new WeakMap<ICellModel, readonly [source: string, digest: string]>();
  private _editing: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _connection: LiveConnection,
    private readonly _histories: Histories,
    private readonly _settings: ISettings,
    private readonly _replicated: (kernel: Kernel.IKernelConnection) => boolean,
    private readonly _name: NameKernel,
    place: string,
    readonly trans: ITranslate
  ) {
    this._follow = _histories.follow();
    this._memory = new LineMemory(() => `${place}:${_panel.context.path}`);
    this._live = document.createElement('div');
    this._live.className = 'jp-replkernel-spoken';
    this._live.setAttribute('role', 'status');
    this._live.setAttribute('aria-live', 'polite');
    this._banner = new Widget({ node: document.createElement('div') });
    this._banner.addClass('jp-replkernel-banner');
    this._banner.node.setAttribute('role', 'status');
    this._banner.hide();
    _panel.contentHeader.addWidget(this._banner);
    this._widths.observe(_panel.content.node);
    const { sessionContext, content } = _panel;
    sessionContext.kernelChanged.connect(this._onKernel, this);
    sessionContext.statusChanged.connect(this._onStatus, this);
    content.modelContentChanged.connect(this._showNew, this);
    _settings.changed.connect(this._onKernel, this);
    _panel.disposed.connect(() => {
      this.dispose();
    });
    void Promise.all([sessionContext.ready, _panel.context.ready]).then(() => {
      this._memory.open();
      this._onKernel();
    });
  }

  dispose(): void {
    this._stop();
    this._inSight.dispose();
    this._widths.disconnect();
    clearTimeout(this._speaking);
    clearTimeout(this._editing);
    Signal.clearData(this);
  }

  execution(cellId: string): IExecution | null {
    return this._connection.store.ofCell(this._kernelId, cellId) ?? this._past(cellId);
  }

  ended(execution: IExecution): boolean {
    return this._memory.has(execution);
  }

  /** What a kernel that has ended did with a cell, while the cell holds its code and what it has put out. */
  private _past(cellId: string): IExecution | null {
    const past = this._memory.past(cellId, this._kernelId);
    const model = this._cell(cellId)?.model as ICodeCellModel | undefined;
    if (past === null || model?.type !== 'code') {
      return null;
    }
    const shows = model.executionCount !== null || model.outputs.length > 0;
    return shows && this.isCodeOf(past) ? past : null;
  }

  cancel(execution: IExecution): (() => void) | null {
    const { store } = this._connection;
    const kernel = this._panel.sessionContext.session?.kernel;
    if (!kernel || !store.current || !canCancel(execution, store.cells(kernel.id).values())) {
      return null;
    }
    return () => {
      cancel(kernel, execution.msg_id).catch((error: unknown) => {
        const message = error instanceof Error ? error.message : String(error);
        Notification.error(message, { autoClose: ERROR_SHOWN_MS });
      });
    };
  }

  pins(execution: IExecution): readonly IPin[] {
    const { store } = this._connection;
    const kernel = store.kernel(execution.kernel_id);
    const newest = store.newest(execution.kernel_id);
    const replica = kernel?.replicas.find(one => one.replica === execution.replica);
    return newest?.msg_id === execution.msg_id ? (replica?.pins ?? []) : [];
  }

  request(cellId: string): ICellRequest | null {
    const model = this._cell(cellId)?.model;
    return model === undefined ? null : readCellRequest(model);
  }

  setRequest(cellId: string, wanted: ICellRequest): void {
    const cell = this._cell(cellId);
    if (cell !== undefined) {
      writeCellRequest(cell.model, wanted);
      this._lines.get(cell)?.update();
    }
  }

  private _cell(cellId: string): Cell | undefined {
    const known = this._found.get(cellId);
    if (known !== undefined && !known.isDisposed && known.model.id === cellId) {
      return known;
    }
    this._found = new Map(this._panel.content.widgets.map(cell => [cell.model.id, cell]));
    return this._found.get(cellId);
  }

  isCodeOf(execution: IExecution): boolean {
    const model = this._cell(execution.cell_id)?.model;
    if (model === undefined || !execution.code_digest) {
      return true;
    }
    const source = model.sharedModel.getSource();
    let known = this._digests.get(model);
    if (known?.[0] !== source) {
      known = [source, textDigest(source)];
      this._digests.set(model, known);
    }
    return known[1] === execution.code_digest;
  }

  isUndone(execution: IExecution): boolean {
    return isUndone(this._histories.of(this._kernelId), execution);
  }

  models(): ReadonlyMap<string, string> {
    return this._connection.store.models;
  }

  now(): number {
    return this._connection.store.serverTime(Date.now() / 1000);
  }

  written(cellId: string): string {
    return gpuLine(this._cell(cellId)?.model.sharedModel.getSource() ?? '');
  }

  asks(cellId: string): string {
    const model = this._cell(cellId)?.model;
    return model === undefined ? '' : this._asks(model);
  }

  private _asks(model: ICellModel): string {
    return requestInWords(readCellRequest(model), gpuLine(model.sharedModel.getSource()), this.trans);
  }

  holder(execution: IExecution): string {
    return execution.state === 'waiting'
      ? holder(this._connection.store, execution.kernel_id, this._name, this.trans)
      : '';
  }

  most(): number {
    return mostGpus(this._connection.store.hosts);
  }

  /** Say on one banner why what is shown may not hold now. */
  private _warn(): void {
    const { store } = this._connection;
    const busy = [...store.cells(this._kernelId).values()].some(one => one.state !== 'done');
    const doubted = store.told && this._release !== null && store.kernel(this._kernelId) !== null;
    const safe = isSafe(store, this._kernelId);
    const text = doubted ? bannerInWords(store.doubt(this._kernelId), busy, safe, this.trans) : '';
    this._banner.setHidden(text === '');
    if (this._banner.node.textContent !== text) {
      this._banner.node.textContent = text;
    }
  }

  private get _kernelId(): string {
    return this._panel.sessionContext.session?.kernel?.id ?? '';
  }

  private _onKernel(): void {
    const kernel = this._panel.sessionContext.session?.kernel;
    const shown = this._settings.value.cellLines && !this._panel.isDisposed;
    if (!kernel || !shown || !this._replicated(kernel)) {
      this._stop(shown && !kernel);
      return;
    }
    if (this._release === null) {
      this._release = this._connection.want();
      this._connection.changed.connect(this._onChanged, this);
      this._connection.interrupted.connect(this._showAll, this);
      this._panel.node.append(this._live);
      this._histories.changed.connect(this._onHistory, this);
    }
    this._follow(kernel.id);
    this._showAll();
  }

  /** Listen no more; `stay`: the kernel has ended, and its lines stay with its outputs. */
  private _stop(stay = false): void {
    clearTimeout(this._timer);
    this._memory.stop();
    this._release?.();
    this._release = null;
    this._follow('');
    this._histories.changed.disconnect(this._onHistory, this);
    this._connection.changed.disconnect(this._onChanged, this);
    this._connection.interrupted.disconnect(this._showAll, this);
    this._live.remove();
    this._warn();
    if (stay) {
      this._show(null);
      return;
    }
    for (const [cell, line] of this._lines) {
      cell.removeClass('jp-replkernel-mod-waits');
      this._inSight.remove(line);
      line.dispose();
    }
    this._lines.clear();
  }

  private _onStatus(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting' && this._release !== null) {
      this._memory.restart(this._kernelId, this._connection.store);
    }
  }

  private _onHistory(_: unknown, kernelId: string): void {
    if (kernelId === this._kernelId) {
      this._showAll();
    }
  }

  private _onChanged(_: unknown, touched: ITouched): void {
    const cells = touched.cells.get(this._kernelId);
    this._warn();
    if (touched.kernels.has(this._kernelId)) {
      this._show(cells ?? null);
    } else if (touched.cluster) {
      this._showOpen();
    }
    if (cells !== undefined) {
      this._memory.follow(() => this._kernelId, this._connection.store);
    }
  }

  /** Of hosts speak the lines of cells that are not done, and those that are seen; the others when they are seen. */
  private _showOpen(): void {
    const known = this._connection.store.cells(this._kernelId);
    for (const [cell, line] of this._lines) {
      const open = (known.get(cell.model.id)?.state ?? 'done') !== 'done';
      if (open || this._inSight.has(line)) {
        this._inSight.update(line);
      }
    }
  }

  private _showAll(): void {
    this._warn();
    if (this._release !== null) {
      this._show(null);
    }
  }

  /** Give cells that have come since the lines that they should have; it is called with each key that is hit. */
  private _showNew(): void {
    if (this._release === null) {
      return;
    }
    clearTimeout(this._editing);
    this._editing = setTimeout(() => {
      this._showAll(); // A cell may hold other code than what ran, or ask for other GPUs.
    }, EDITED_MS);
    const known = this._connection.store.cells(this._kernelId);
    const bare = this._panel.content.widgets.filter(
      cell => known.has(cell.model.id) && !this._lines.has(cell) && cell.model.type === 'code'
    );
    if (bare.length > 0) {
      this._show(new Set(bare.map(cell => cell.model.id)));
    }
  }

  /** Bring lines up to date: those of some cells, or (null) of all. */
  private _show(cellIds: ReadonlySet<string> | null): void {
    const known = this._connection.store.cells(this._kernelId);
    for (const cell of this._panel.content.widgets) {
      const { id, type } = cell.model;
      if (type !== 'code' || (cellIds !== null && !cellIds.has(id))) {
        continue;
      }
      const execution = known.get(id) ?? this._past(id) ?? undefined;
      const bare = execution === undefined && this._asks(cell.model) === '';
      const line = bare ? this._lines.get(cell) : this._line(cell);
      if (line !== undefined) {
        this._inSight.update(line);
      }
      // The kernel says under the cell that it waits, for front ends that do not; here the line does.
      const waits =
        this._connection.store.current && execution?.state === 'waiting' && execution.trouble === '';
      cell.toggleClass('jp-replkernel-mod-waits', waits);
    }
    if (cellIds !== null) {
      this._speak(cellIds);
    }
    this._tick();
  }

  private _line(cell: Cell): CellLine {
    let line = this._lines.get(cell);
    if (line === undefined) {
      line = new CellLine(cell.model.id, this);
      this._lines.set(cell, line);
      const layout = cell.layout as PanelLayout;
      const made = line;
      const place = () => {
        layout.insertWidget(Math.max(0, layout.widgets.length - 1), made); // Above the cell's footer.
      };
      place();
      if (cell.isPlaceholder()) {
        // Input and output come when the cell is first seen, below what is there then.
        void cell.ready.then(() => {
          if (!made.isDisposed && !cell.isDisposed) {
            place();
          }
        });
      }
      this._inSight.add(line);
      cell.disposed.connect(() => {
        this._inSight.remove(made);
        this._lines.delete(cell);
      });
    }
    return line;
  }

  /** Let the times of what runs or waits go on, once a second and only where somebody may look. */
  private _tick(): void {
    clearTimeout(this._timer);
    const ticking = [...this._lines].filter(([cell]) => {
      const state = this.execution(cell.model.id)?.state;
      return state === 'running' || state === 'waiting';
    });
    if (ticking.length === 0) {
      return;
    }
    this._timer = setTimeout(() => {
      if (!document.hidden && this._panel.isVisible) {
        ticking
          .filter(([, line]) => this._inSight.has(line))
          .forEach(([, line]) => {
            line.update();
          });
      }
      this._tick();
    }, TICK_MS);
  }

  /** Tell those who cannot see what the newest of these cells does now. */
  private _speak(cellIds: ReadonlySet<string>): void {
    clearTimeout(this._speaking);
    this._speaking = setTimeout(() => {
      const executions = [...cellIds].map(id => this.execution(id)).filter(one => one !== null);
      const newest = executions.sort((one, other) => (other.accepted_at ?? 0) - (one.accepted_at ?? 0))[0];
      if (newest === undefined) {
        return;
      }
      const { state, safety } = describeLine(
        newest,
        this.models(),
        this.now(),
        this.trans,
        this.holder(newest)
      );
      const text = safety === null ? state.text : `${state.text}, ${safety.text}`;
      if (text !== this._said) {
        this._said = text;
        this._live.textContent = text;
      }
    }, SPEAK_MS);
  }
}
