// The panel at the side: the notebook in front, the cluster, oneself. It listens only while it is seen.
import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import type { Widget } from '@lumino/widgets';
import * as React from 'react';

import { besidePx } from '../models/beside';
import type { ISidebarSource } from './sidebarBody';
import { SidebarBody } from './sidebarBody';

const TICK_MS = 2_000;
/** The panel may have to hear of the notebook first. */
const FOCUS_TRIES = 30;
const FOCUS_MS = 100;
/** How wide the panel is where it stands at the window's right edge: notices come up beside it. */
const BESIDE = '--jp-replkernel-beside';

/** The panel. */
export class Sidebar extends ReactWidget {
  private _release: (() => void) | null = null;
  private _timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly _source: ISidebarSource) {
    super();
    this.addClass('jp-replkernel-sidebar');
    _source.connection.changed.connect(this.refresh, this);
    _source.connection.interrupted.connect(this.refresh, this);
  }

  override dispose(): void {
    this._rest();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._release ??= this._source.connection.want();
    clearInterval(this._timer);
    this._timer = setInterval(() => {
      this.refresh();
    }, TICK_MS);
    this._makeWay();
    this._follow();
    this.update();
  }

  protected override onResize(message: Widget.ResizeMessage): void {
    super.onResize(message);
    this._makeWay();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._rest();
  }

  protected override render(): React.JSX.Element {
    return <SidebarBody source={this._source} />;
  }

  /** Want to know the history of the notebook in front, whoever else does. */
  private _follow(): void {
    this._source.follow(this._source.notebook()?.kernelId ?? '');
  }

  private _makeWay(): void {
    const em = parseFloat(getComputedStyle(document.body).fontSize);
    const room = this.isVisible ? besidePx(this.node.getBoundingClientRect(), window.innerWidth, em) : 0;
    document.body.style.setProperty(BESIDE, `${room}px`);
  }

  private _rest(): void {
    document.body.style.removeProperty(BESIDE);
    clearInterval(this._timer);
    this._source.follow('');
    this._release?.();
    this._release = null;
  }

  /** Put the focus on the list of points, once it is there, and the palette has given back what it had. */
  focusHistory(tries = FOCUS_TRIES): void {
    setTimeout(() => {
      const list = this.node.querySelector<HTMLElement>('[role="listbox"]');
      if (list !== null) {
        list.focus();
      } else if (tries > 0 && !this.isDisposed) {
        this.focusHistory(tries - 1);
      }
    }, FOCUS_MS);
  }

  /** Show what holds now, if anybody sees it. */
  refresh(): void {
    if (this._release !== null && this.isVisible && !document.hidden) {
      this._follow();
      this.update();
    }
  }
}
