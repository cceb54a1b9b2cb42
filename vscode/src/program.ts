// Which program tells of a notebook: the one that the setting names, else the kernelspec's own Python, else the PATH's.
// Law: a notebook names a kernelspec, never a program; only the user's and the system's kernelspecs are read.
import { isAbsolute, join } from 'node:path';

export type Command = [program: string, ...rest: string[]];

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;

/** Return the command that tells of a notebook. */
export function commandOf(python: string, notebook: string): Command {
  return python === ''
    ? ['replkernel', 'follow', notebook]
    : [python, '-P', '-m', 'replkernel.cli', 'follow', notebook];
}

/** Where a kernelspec of this name may be, in the order in which Jupyter looks. */
export function kernelFiles(
  name: string,
  env: Readonly<Record<string, string | undefined>>,
  home: string,
  platform: string
): string[] {
  if (!NAME.test(name)) {
    return [];
  }
  const own = platform === 'darwin' ? join(home, 'Library', 'Jupyter') : join(home, '.local', 'share', 'jupyter');
  const data = env['XDG_DATA_HOME'] ? join(env['XDG_DATA_HOME'], 'jupyter') : own;
  const places = [
    ...(env['JUPYTER_PATH'] ?? '').split(':'),
    env['JUPYTER_DATA_DIR'] ?? (platform === 'darwin' ? own : data),
    '/usr/local/share/jupyter',
    '/usr/share/jupyter'
  ];
  return places.filter(isAbsolute).map(place => join(place, 'kernels', name, 'kernel.json'));
}

/** Return the Python that a kernelspec starts, if it names one of this project by its path. */
export function pythonIn(text: string): string {
  try {
    const { argv } = JSON.parse(text) as { argv?: unknown };
    const [program, ...rest] = Array.isArray(argv) ? (argv as unknown[]) : [];
    const ours = rest.includes('replkernel.router');
    return typeof program === 'string' && isAbsolute(program) && ours ? program : '';
  } catch {
    return '';
  }
}

/** Whether a program's complaint says that replkernel is not there. */
export function isMissing(complaint: string): boolean {
  return /No module named '?replkernel\b/.test(complaint);
}
