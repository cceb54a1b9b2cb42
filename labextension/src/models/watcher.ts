// Watches the messages of one notebook's session and remembers the facts of its last cell.
// It only listens: it sends nothing to the kernel.
import type { ISessionContext } from '@jupyterlab/apputils';
import type { Kernel, Session } from '@jupyterlab/services';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { ICellFacts } from './facts';
import { readFacts } from './facts';

/** The kernelspec that this extension belongs to. */
export const KERNEL_NAME = 'replkernel';
/** The provisioner that kernelspecs of replicated kernels name, whatever they are called themselves. */
export const PROVISIONER_NAME = 'replkernel-provisioner';

/** The facts of the last cell that one session's kernel has answered. */
export class SessionWatcher {
  private _facts: ICellFacts | null = null;
  private readonly _changed = new Signal<this, void>(this);

  constructor(
    private readonly _context: ISessionContext,
    private readonly _replicated: (kernel: Kernel.IKernelConnection) => boolean
  ) {
    this._listen(_context.session);
    _context.sessionChanged.connect(this._onSession, this);
    _context.kernelChanged.connect(this._forget, this);
    _context.statusChanged.connect(this._onStatus, this);
    _context.disposed.connect(() => {
      Signal.clearData(this);
    });
  }

  /** Emitted when `facts` or `replicated` may have changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** What the last reply said; null before the first one. */
  get facts(): ICellFacts | null {
    return this._facts;
  }

  /** Whether the session's kernel is a replicated one. */
  get replicated(): boolean {
    const kernel = this._context.session?.kernel;
    return this._facts !== null || (!!kernel && this._replicated(kernel));
  }

  private _listen(session: Session.ISessionConnection | null): void {
    session?.anyMessage.connect(this._onMessage, this);
  }

  private _onSession(
    _: ISessionContext,
    change: { oldValue?: Session.ISessionConnection | null; newValue?: Session.ISessionConnection | null }
  ): void {
    change.oldValue?.anyMessage.disconnect(this._onMessage, this);
    this._listen(change.newValue ?? null);
    this._forget();
  }

  private _onMessage(_: Session.ISessionConnection, args: Kernel.IAnyMessageArgs): void {
    if (args.direction !== 'recv' || args.msg.header.msg_type !== 'execute_reply') {
      return;
    }
    const facts = readFacts(args.msg.metadata);
    if (facts !== null) {
      this._facts = facts;
      this._changed.emit();
    }
  }

  private _onStatus(_: ISessionContext, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this._forget();
    }
  }

  private _forget(): void {
    this._facts = null;
    this._changed.emit();
  }
}
