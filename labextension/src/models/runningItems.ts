// The Running panel's items of other sections, without the kernels that a section of ours lists. Pure.
import type { IRunningSessions } from '@jupyterlab/running';

type Item = IRunningSessions.IRunningItem;

/** Whether a kernel is one of ours. */
export type IsOurs = (kernelId: string) => boolean;

/** Whether an item stands for a kernel of ours. */
export function isOne({ context }: Item, isOurs: IsOurs): boolean {
  return context !== undefined && isOurs(context);
}

/** All items and what is below them. */
export function flat(items: readonly Item[]): Item[] {
  return items.flatMap(item => [item, ...flat(item.children ?? [])]);
}

/** Leave out the kernels of ours, and what has nothing else below it. */
export function without(items: readonly Item[], isOurs: IsOurs): Item[] {
  return items.flatMap(item => {
    if (isOne(item, isOurs)) {
      return [];
    }
    const children = item.children ?? [];
    const left = without(children, isOurs);
    if (left.length === children.length && left.every((one, at) => one === children[at])) {
      return [item];
    }
    // The items are objects of classes: what is not replaced is theirs.
    return left.length === 0 ? [] : [Object.create(item, { children: { value: left } }) as Item];
  });
}
