// The page's one connection to what the server tells live: a WebSocket, or, where there can be none, questions
// from time to time. A driver: it holds timers and sockets. What is known is the store's.
// Law: nothing is connected while nobody is interested, or the page has been hidden for a while.
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { Poll } from '@lumino/polling';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { Message } from '../generated/live';
import type { ITouched } from './live';
import { LiveStore } from './live';

const PATH = 'replkernel/api/live';
/** For so long a hidden page goes on listening. */
export const HIDDEN_MAX_MS = 20_000;
/** A server that is well tells something every 8 seconds; after so long without a word the connection is lost. */
const SILENT_MAX_MS = 20_000;
const AGAIN_MS = 1_000;
const AGAIN_MAX_MS = 30_000;
/** After so many sockets that never opened, the server is asked instead. */
const SOCKETS_MAX = 3;
/** How often the server is asked then, unless `pollEach` says otherwise. */
const POLL_MS = 2_000;
/** After so many answers a socket is tried again. */
const SOCKET_EACH = 15;

/** What the server tells, for as long as somebody wants to know. */
export class LiveConnection {
  readonly store = new LiveStore();
  private readonly _changed = new Signal<this, ITouched>(this);
  private readonly _interrupted = new Signal<this, void>(this);
  private _interest = 0;
  private _socket: WebSocket | null = null;
  private _failures = 0;
  private _answers = 0;
  private _timer: ReturnType<typeof setTimeout> | undefined;
  private _hidden: ReturnType<typeof setTimeout> | undefined;
  private _silent: ReturnType<typeof setTimeout> | undefined;
  private readonly _poll: Poll;

  constructor(private readonly _settings: ServerConnection.ISettings) {
    this._poll = new Poll({
      name: 'replkernel:live',
      auto: false,
      factory: () => this._ask(),
      frequency: { interval: POLL_MS, backoff: true, max: AGAIN_MAX_MS },
      standby: () => (this._wanted && this._failures >= SOCKETS_MAX ? 'when-hidden' : true)
    });
    document.addEventListener('visibilitychange', () => {
      this._onVisibility();
    });
  }

  /** Emitted when the store has changed. */
  get changed(): ISignal<this, ITouched> {
    return this._changed;
  }

  /** Emitted when what is known is not told any more, until `changed` is. */
  get interrupted(): ISignal<this, void> {
    return this._interrupted;
  }

  /** Where no socket can be had, ask every so many seconds. */
  pollEach(seconds: number): void {
    this._poll.frequency = { ...this._poll.frequency, interval: seconds * 1000 };
  }

  /** Want to know, until the function that is returned is called. */
  want(): () => void {
    this._interest += 1;
    let wanted = true;
    this._open();
    return () => {
      if (wanted) {
        wanted = false;
        this._interest -= 1;
        if (this._interest === 0) {
          this._close();
        }
      }
    };
  }

  private get _wanted(): boolean {
    return this._interest > 0 && !document.hidden;
  }

  private _open(): void {
    if (!this._wanted || this._socket !== null) {
      return;
    }
    if (this._failures >= SOCKETS_MAX) {
      void this._poll.start();
      return;
    }
    clearTimeout(this._timer);
    const { wsUrl, token, appendToken, WebSocket } = this._settings;
    let url = URLExt.join(wsUrl, PATH, 'channel');
    if (appendToken && token !== '') {
      url += `?token=${encodeURIComponent(token)}`;
    }
    const socket = new WebSocket(url);
    this._socket = socket;
    let heard = false;
    const lost = () => {
      if (this._socket === socket) {
        this._socket = null;
        this._failures += heard ? 0 : 1;
        this._lost();
      }
    };
    const giveUp = () => {
      lost();
      socket.close();
    };
    socket.onmessage = (event: MessageEvent<string>) => {
      heard = true;
      this._failures = 0;
      this._limit(giveUp);
      this._take(JSON.parse(event.data) as Message, socket);
    };
    socket.onclose = lost;
    this._limit(giveUp);
  }

  /** Give a server up that says nothing from now on, though its connection seems to come or to be there. */
  private _limit(giveUp: () => void): void {
    clearTimeout(this._silent);
    this._silent = setTimeout(giveUp, SILENT_MAX_MS);
  }

  private _lost(): void {
    clearTimeout(this._silent);
    this._interrupt();
    if (this._failures >= SOCKETS_MAX) {
      this._open();
      return;
    }
    const wait = Math.min(AGAIN_MAX_MS, AGAIN_MS * 2 ** this._failures);
    this._timer = setTimeout(
      () => {
        this._open();
      },
      wait * (0.5 + Math.random() / 2)
    );
  }

  private _take(message: Message, socket: WebSocket | null): void {
    const touched = this.store.apply(message, Date.now() / 1000);
    if (touched === null) {
      socket?.close(); // Something was missed: the next connection begins with everything.
    } else {
      this._changed.emit(touched);
    }
  }

  private async _ask(): Promise<void> {
    const url = URLExt.join(this._settings.baseUrl, PATH);
    try {
      const answer = await ServerConnection.makeRequest(url, {}, this._settings);
      if (!answer.ok) {
        throw new ServerConnection.ResponseError(answer);
      }
      this._take((await answer.json()) as Message, null);
    } catch (error) {
      this._interrupt(); // What was told may not hold any more, and is not called so.
      throw error;
    }
    this._answers += 1;
    if (this._answers % SOCKET_EACH === 0) {
      this._failures = SOCKETS_MAX - 1; // One more try: the server may have been away, not sockets.
      void this._poll.stop();
      this._open();
    }
  }

  private _close(): void {
    clearTimeout(this._timer);
    clearTimeout(this._silent);
    const socket = this._socket;
    this._socket = null;
    socket?.close();
    void this._poll.stop();
    this._interrupt();
  }

  private _interrupt(): void {
    if (this.store.current) {
      this.store.interrupted();
      this._interrupted.emit();
    }
  }

  private _onVisibility(): void {
    clearTimeout(this._hidden);
    if (document.hidden) {
      this._hidden = setTimeout(() => {
        this._close();
      }, HIDDEN_MAX_MS);
    } else {
      this._open();
    }
  }
}
