// What the GPU chooser of one notebook shows and does. A driver: signals, the kernel's control channel, a dialog.
// Law: it listens only while its notebook is seen; what holds is what the kernel says. What was chosen is shown
// until the kernel has refused it, or has told what holds.
import { InputDialog, Notification } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import type { IChooserSource } from '../components/gpuChooser';
import { request } from './actions';
import { mostGpus } from './cluster';
import type { LiveConnection } from './connection';
import type { ITranslate } from './line';

const SHOWN_MS = 6_000;
const TOLD_MS = 5_000;

/** What every cell gets. */
interface IHolds {
  gpus: number;
  vramGb: number;
}

/** The source of one notebook's chooser. */
export class ChooserSource implements IChooserSource, IDisposable {
  readonly changed = new Signal<this, void>(this);
  private _told = '';
  private _chosen: IHolds | null = null;
  private _release: (() => void) | null = null;

  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _connection: LiveConnection,
    private readonly _replicated: (kernel: Kernel.IKernelConnection) => boolean,
    readonly trans: ITranslate
  ) {
    _connection.changed.connect(this._look, this);
    _panel.sessionContext.kernelChanged.connect(this._look, this);
    void _panel.sessionContext.ready.then(() => {
      this._look();
    });
  }

  get isDisposed(): boolean {
    return this._panel.isDisposed;
  }

  dispose(): void {
    this._release?.();
    this._release = null;
    Signal.clearData(this);
  }

  shown(): boolean {
    return this._kernel !== null;
  }

  holds(): IHolds | null {
    return this._chosen ?? this._said();
  }

  most(): number {
    return mostGpus(this._connection.store.hosts);
  }

  choose(gpus: number): void {
    this._ask(gpus, gpus === 0 ? 0 : (this.holds()?.vramGb ?? 0));
  }

  askForMemory(): void {
    const { trans } = this;
    const holds = this.holds();
    const title = trans('Memory that each GPU must have, at least (GiB; 0: any)');
    void InputDialog.getNumber({ title, value: holds?.vramGb ?? 0 }).then(({ value }) => {
      if (value !== null && holds !== null) {
        this._ask(holds.gpus, Math.max(0, value));
      }
      this.changed.emit();
    });
  }

  private get _kernel(): Kernel.IKernelConnection | null {
    const kernel = this._panel.sessionContext.session?.kernel ?? null;
    return kernel !== null && this._replicated(kernel) ? kernel : null;
  }

  private _said(): IHolds | null {
    const kernel = this._connection.store.kernel(this._kernel?.id ?? '');
    return kernel === null ? null : { gpus: kernel.default_gpus, vramGb: kernel.default_vram_gb };
  }

  private _ask(gpus: number, vramGb: number): void {
    const kernel = this._kernel;
    if (kernel === null) {
      return;
    }
    const chosen = { gpus, vramGb };
    this._chosen = chosen;
    this.changed.emit();
    request(kernel, gpus, vramGb)
      .then(said => {
        Notification.info(said, { autoClose: SHOWN_MS });
        setTimeout(() => {
          this._giveWay(chosen);
        }, TOLD_MS);
      })
      .catch((error: unknown) => {
        Notification.error(error instanceof Error ? error.message : String(error), { autoClose: SHOWN_MS });
        this._giveWay(chosen);
      });
  }

  /** Show what holds in the place of what was chosen. */
  private _giveWay(chosen: IHolds): void {
    if (this._chosen === chosen && !this.isDisposed) {
      this._chosen = null;
      this._look();
      this.changed.emit();
    }
  }

  private _look(): void {
    if (this._panel.isDisposed) {
      this.dispose();
      return;
    }
    if (this.shown()) {
      this._release ??= this._connection.want();
    } else {
      this._release?.();
      this._release = null;
    }
    const said = this._said();
    if (said === null || (said.gpus === this._chosen?.gpus && said.vramGb === this._chosen.vramGb)) {
      this._chosen = null;
    }
    const told = JSON.stringify([this.shown(), this.holds(), this.most()]);
    if (told !== this._told) {
      this._told = told;
      this.changed.emit();
    }
  }
}
