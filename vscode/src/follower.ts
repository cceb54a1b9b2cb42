// The process that tells of one notebook: started, read by lines, started again when it has ended.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';

import { isMissing } from './program';
import { Known } from './told';

/** So long after its end it is started again, the longer the more often it ended without a word. */
const AGAIN_MS = [1_000, 5_000, 30_000];
const LINE_CHARS_MAX = 4 * 1024 * 1024;
const COMPLAINT_CHARS_MAX = 4_000;

/** Follows one notebook until it is disposed. */
export class Follower {
  readonly known = new Known();
  private _process: ChildProcess | null = null;
  private _rest = '';
  private _silent = 0;
  private _timer: NodeJS.Timeout | undefined;
  private _over = false;

  constructor(
    private readonly _command: readonly [string, ...string[]],
    private readonly _changed: () => void
  ) {
    this._start();
  }

  private _start(): void {
    const [program, ...rest] = this._command;
    const process = spawn(program, rest, { stdio: ['pipe', 'pipe', 'pipe'], shell: false });
    this._process = process;
    this._rest = '';
    process.stdout.setEncoding('utf8').on('data', (text: string) => {
      this._read(text);
    });
    process.stdin.on('error', () => undefined);
    let complaint = '';
    process.stderr.setEncoding('utf8').on('data', (text: string) => {
      complaint = (complaint + text).slice(-COMPLAINT_CHARS_MAX);
    });
    process.once('error', (error: NodeJS.ErrnoException) => {
      this.known.missing = error.code === 'ENOENT';
      this.known.trouble = `replkernel follow: ${error.message}`;
      this._ended();
    });
    process.once('exit', (code: number | null) => {
      if (code !== 0 && complaint !== '') {
        this.known.missing = isMissing(complaint);
        this.known.trouble = `replkernel follow: ${complaint.trim().split('\n').pop() ?? ''}`;
      }
      this._ended();
    });
  }

  private _read(text: string): void {
    const lines = (this._rest + text).split('\n');
    this._rest = lines.pop() ?? '';
    if (this._rest.length > LINE_CHARS_MAX) {
      this._rest = '';
    }
    const took = lines.map(line => this.known.take(line, Date.now() / 1000));
    if (took.includes(true)) {
      this._silent = 0;
      this._changed();
    }
  }

  private _ended(): void {
    if (this._process === null || this._over) {
      return;
    }
    this._process = null;
    const wait = AGAIN_MS[Math.min(this._silent++, AGAIN_MS.length - 1)];
    this._timer = setTimeout(() => {
      this._start();
    }, wait);
    this._changed();
  }

  /** End the process: its standard input ends, which it takes for its own end. */
  dispose(): void {
    this._over = true;
    clearTimeout(this._timer);
    this._process?.stdin?.end();
    this._process?.kill();
    this._process = null;
  }
}
