// Brings into one notebook what its kernel has published while this page did not listen: asks the kernel's journal
// when the page is opened or connected again, follows what still runs, and tells the journal what has been saved.
// A driver: it holds timers and signals. What to ask is decided in polling.ts, what to show in ledger.ts.
import type { CodeCell, ICodeCellModel } from '@jupyterlab/cells';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { INotebookModel } from '@jupyterlab/notebook';
import type { Kernel, KernelMessage } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import type { Question } from './polling';
import { Polling } from './polling';
import { showExecution } from './cells';
import { textDigest } from './digest';
import type { IExecution } from './journal';
import { OUTPUTS_REQUEST, OUTPUTS_SAVED, readPage } from './journal';
import type { ICellView } from './ledger';
import { Ledger } from './ledger';
import { ask } from './question';

/** How long after an execution's end its own messages may still come to a page that lost some of them. */
export const LATE_MAX_MS = 10_000;

/** What the restorer needs of the page that it works in. */
export interface IPage {
  /** The code cells of the notebook, in every view of it. */
  codeCells(): Iterable<CodeCell>;
  /** Whether a kernel keeps a journal. */
  replicated(kernel: Kernel.IKernelConnection): boolean;
}

type Future = CodeCell['outputArea']['future'];

/** What one notebook shows of its kernel's journal. */
export class OutputsRestorer {
  private _ledger = new Ledger();
  private _polling = new Polling();
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _asking = false;
  private _saving: string[] = [];
  private readonly _saved = new Set<string>();
  private readonly _digests = new WeakMap<ICodeCellModel, readonly [source: string, digest: string]>();

  constructor(
    private readonly _context: DocumentRegistry.IContext<INotebookModel>,
    private readonly _page: IPage
  ) {
    const session = _context.sessionContext;
    session.connectionStatusChanged.connect(this._onConnection, this);
    session.kernelChanged.connect(this._onKernel, this);
    session.statusChanged.connect(this._onStatus, this);
    session.iopubMessage.connect(this._onIOPub, this);
    _context.saveState.connect(this._onSave, this);
    _context.disposed.connect(() => {
      clearTimeout(this._timer);
      Signal.clearData(this);
    });
    void Promise.all([_context.ready, session.ready]).then(() => {
      this._opened();
    });
  }

  /** The notebook's kernel, if it keeps a journal and can be asked now. */
  private get _kernel(): Kernel.IKernelConnection | null {
    const kernel = this._context.sessionContext.session?.kernel;
    if (kernel?.connectionStatus !== 'connected' || this._context.isDisposed || !this._context.isReady) {
      return null;
    }
    return this._page.replicated(kernel) && !this._context.model.collaborative ? kernel : null;
  }

  private _opened(): void {
    this._polling.opened(performance.now());
    this._arm();
  }

  private _onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    if (status === 'connected') {
      this._opened();
    } else {
      this._ledger.interrupt(this._running());
    }
  }

  private _onKernel(): void {
    this._forget();
    this._opened();
  }

  private _onStatus(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this._forget();
    }
  }

  private _onIOPub(_: unknown, message: KernelMessage.IMessage): void {
    const parent = message.parent_header;
    if (!('msg_id' in parent)) {
      return;
    }
    if (this._ledger.following.has(parent.msg_id)) {
      this._polling.sign(performance.now());
      this._arm();
    } else if (
      parent.msg_type === 'execute_request' &&
      parent.session === this._context.sessionContext.session?.kernel?.clientId &&
      (message.content as Record<string, unknown>)['execution_state'] === 'idle'
    ) {
      this._ledger.ended(parent.msg_id);
    }
  }

  private _onSave(_: unknown, state: DocumentRegistry.SaveState): void {
    if (state === 'started') {
      this._saving = this._ledger.toAcknowledge(); // The notebook is written as it is at this moment.
    } else if (state === 'completed') {
      for (const msgId of this._saving.splice(0)) {
        this._saved.add(msgId);
      }
      this._acknowledge().catch(() => undefined); // Asked again when the page is connected again.
    }
  }

  /** Another kernel, or the same one from its beginning: nothing that was known holds any more. */
  private _forget(): void {
    this._rest(this._ledger.vanished(new Set()));
    this._ledger = new Ledger();
    this._polling = new Polling();
    this._saving = [];
    this._saved.clear();
    this._arm();
  }

  private _arm(): void {
    clearTimeout(this._timer);
    const due = this._polling.due;
    if (due !== null && !this._asking && this._kernel !== null) {
      this._timer = setTimeout(() => void this._ask(), Math.max(0, due - performance.now()));
    }
  }

  private async _ask(): Promise<void> {
    const kernel = this._kernel;
    const polling = this._polling;
    const question = polling.take();
    if (kernel === null || question === null) {
      return; // There will be another one as soon as there is a connection.
    }
    this._asking = true;
    const began = performance.now();
    try {
      await this._acknowledge();
      await this._read(kernel, question);
      polling.answered(began, performance.now(), this._ledger.following.size > 0);
    } catch (error) {
      console.warn('Outputs of a replicated kernel could not be brought in; it is tried again.', error);
      polling.failed(performance.now());
    } finally {
      this._asking = false;
      this._arm();
    }
  }

  /** Ask for executions until there are no more, and show them. */
  private async _read(kernel: Kernel.IKernelConnection, question: Question): Promise<void> {
    const ledger = this._ledger;
    const msgIds = question === 'followed' ? [...ledger.following.keys()] : null;
    let since = question === 'news' ? ledger.version : 0;
    const present = new Set<string>();
    for (;;) {
      const page = readPage(await ask(kernel, OUTPUTS_REQUEST, { since, msg_ids: msgIds }));
      if (page === null) {
        throw new Error(`The kernel's answer to ${OUTPUTS_REQUEST} is none.`);
      }
      if (ledger !== this._ledger || this._context.isDisposed) {
        return; // The kernel was restarted meanwhile, or the notebook closed.
      }
      this._show(page.executions);
      page.executions.forEach(({ msgId }) => present.add(msgId));
      const newest = Math.max(since, ...page.executions.map(execution => execution.version));
      if (!page.more || newest === since) {
        break;
      }
      since = newest;
    }
    if (question !== 'news') {
      this._rest(ledger.vanished(present));
    }
  }

  /** Nothing is known any more of what these cells waited for. */
  private _rest(cellIds: readonly string[]): void {
    const cells = this._models();
    for (const cellId of cellIds) {
      const cell = cells.get(cellId);
      if (cell?.executionState === 'running') {
        cell.executionState = 'idle';
      }
    }
  }

  private _show(executions: readonly IExecution[]): void {
    const cells = this._models();
    const futures = this._futures();
    const find = (cellId: string): ICellView | null => {
      const cell = cells.get(cellId);
      return cell === undefined
        ? null
        : { codeDigest: this._digest(cell), own: futures.get(cellId)?.msg.header.msg_id ?? null };
    };
    for (const { execution, takeOver } of this._ledger.decide(executions, find)) {
      const cell = cells.get(execution.cellId);
      const future = futures.get(execution.cellId);
      if (takeOver && future !== undefined) {
        future.onIOPub = () => undefined; // The journal has it all; what is sent again must not be shown twice.
        if (!execution.running) {
          setTimeout(() => {
            future.dispose(); // Its reply may be lost for good, and somebody may wait for it.
          }, LATE_MAX_MS);
        }
      }
      if (cell !== undefined) {
        showExecution(cell, execution);
      }
    }
  }

  /** Tell the journal what a saved notebook holds. */
  private async _acknowledge(): Promise<void> {
    const kernel = this._kernel;
    const msgIds = [...this._saved];
    if (kernel === null || msgIds.length === 0) {
      return;
    }
    await ask(kernel, OUTPUTS_SAVED, { msg_ids: msgIds });
    this._ledger.acknowledged(msgIds);
    for (const msgId of msgIds) {
      this._saved.delete(msgId);
    }
  }

  private _models(): Map<string, ICodeCellModel> {
    const cells = new Map<string, ICodeCellModel>();
    if (this._context.isReady && !this._context.isDisposed) {
      for (const cell of this._context.model.cells) {
        if (cell.type === 'code') {
          cells.set(cell.id, cell as ICodeCellModel);
        }
      }
    }
    return cells;
  }

  /** The futures of the executions that this page itself asked for last, by cell. */
  private _futures(): Map<string, Future> {
    const futures = new Map<string, Future>();
    for (const cell of this._page.codeCells()) {
      // Before its first execution a cell has none, whatever the declared type says.
      const future = cell.outputArea.future as Future | null | undefined;
      if (future && !future.isDisposed) {
        futures.set(cell.model.id, future);
      }
    }
    return futures;
  }

  /** The executions of this page that have not ended yet. */
  private _running(): string[] {
    const models = this._models();
    const running = [...this._futures()].filter(
      ([cellId]) => models.get(cellId)?.executionState === 'running'
    );
    return running.map(([, future]) => future.msg.header.msg_id);
  }

  private _digest(cell: ICodeCellModel): string {
    const source = cell.sharedModel.getSource();
    const known = this._digests.get(cell);
    if (known?.[0] === source) {
      return known[1];
    }
    const digest = textDigest(source);
    this._digests.set(cell, [source, digest]);
    return digest;
  }
}
