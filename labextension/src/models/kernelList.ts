// The replicated kernels that the Running panel lists, and what a person has done about one of them.
// A driver: signals, Jupyter's managers, dialogs. It listens only while the panel is seen.
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { Signal } from '@lumino/signaling';

import type { LiveConnection } from './connection';
import type { ITranslate } from './line';
import { isReplicated } from './replicated';
import { bringBack, deleteResting, putToRest, shutDown } from './resting';
import type { IListed, ILists } from './running';
import { list } from './running';

const OPEN = 'docmanager:open';
const ERROR_SHOWN_MS = 10_000;

/** The kernels. */
export class KernelList {
  /** Emitted when a list has changed. */
  readonly changed = new Signal<this, void>(this);
  private _told = '';
  private _release: (() => void) | null = null;

  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _live: LiveConnection,
    readonly trans: ITranslate
  ) {
    _live.changed.connect(this._look, this);
    _app.serviceManager.sessions.runningChanged.connect(this._look, this);
  }

  get lists(): ILists {
    const names = new Map<string, { name: string; path: string }>();
    for (const { kernel, name, path } of this._app.serviceManager.sessions.running()) {
      if (kernel) {
        names.set(kernel.id, { name: name || path, path });
      }
    }
    const ours = [...this._app.serviceManager.kernels.running()].filter(({ id }) => this.isReplicated(id));
    return list(
      this._live.store,
      kernelId => names.get(kernelId) ?? null,
      this._live.store.serverTime(Date.now() / 1000),
      this.trans,
      ours.map(({ id }) => id)
    );
  }

  /** Whether a kernel of this server is a replicated one, and so listed here. */
  isReplicated(kernelId: string): boolean {
    const { kernels, kernelspecs } = this._app.serviceManager;
    return [...kernels.running()].some(one => one.id === kernelId && isReplicated(one, kernelspecs));
  }

  /** Listen from now on, or no more. */
  seen(now: boolean): void {
    if (now) {
      this._release ??= this._live.want();
    } else {
      this._release?.();
      this._release = null;
    }
  }

  /** Look anew. */
  refresh(): void {
    void this._app.serviceManager.sessions.refreshRunning();
    this.changed.emit();
  }

  /** Open a notebook. */
  open(path: string): void {
    void this._app.commands.execute(OPEN, { path });
  }

  /** Hibernate a kernel. */
  rest(kernelId: string): void {
    this._do(putToRest(this._app.serviceManager, kernelId));
  }

  /** Open a notebook and have its kernel back. */
  resume(one: IListed): void {
    if (one.path !== '') {
      this.open(one.path);
    }
    this._do(bringBack(this._app.serviceManager, one.kernelId));
  }

  /** Shut a kernel down if that is really meant: a hibernated one keeps its variables, this one does not. */
  async askToShutDown(one: IListed): Promise<void> {
    const { trans } = this;
    const body = trans('All variables of %1 are lost. To keep them, hibernate it instead.', one.name);
    if (await this._isMeant(trans('Shut down this kernel?'), body, trans('Shut Down'))) {
      this._do(shutDown(this._app.serviceManager, one.kernelId));
    }
  }

  /** Delete a kernel if that is really meant. */
  async askToDelete(one: IListed): Promise<void> {
    const { trans } = this;
    const body = trans('All variables of %1 are deleted for good. The notebook itself stays.', one.name);
    if (await this._isMeant(trans('Delete this hibernated kernel?'), body, trans('Delete'))) {
      this.delete([one]);
    }
  }

  private async _isMeant(title: string, body: string, label: string): Promise<boolean> {
    const buttons = [Dialog.cancelButton({ label: this.trans('Cancel') }), Dialog.warnButton({ label })];
    return (await showDialog({ title, body, buttons })).button.accept;
  }

  /** Delete hibernated kernels. */
  delete(those: readonly IListed[]): void {
    for (const one of those) {
      this._do(deleteResting(this._app.serviceManager, one.kernelId));
    }
  }

  private _do(doing: Promise<void>): void {
    doing
      .then(() => {
        this.refresh();
      })
      .catch((error: unknown) => {
        Notification.error(error instanceof Error ? error.message : String(error), {
          autoClose: ERROR_SHOWN_MS
        });
      });
  }

  private _look(): void {
    const told = JSON.stringify(this.lists);
    if (told !== this._told) {
      this._told = told;
      this.changed.emit();
    }
  }
}
