// Which kernels are replicated ones, whatever their kernelspec is called.
import type { Kernel, KernelSpec, ServiceManager } from '@jupyterlab/services';

import type { NameKernel } from './cluster';
import { KERNEL_NAME, PROVISIONER_NAME } from './watcher';

/** Tell whether a kernel is replicated, as its kernelspec says. */
export function isReplicated(kernel: Kernel.IModel, specs: KernelSpec.IManager): boolean {
  const spec = specs.specs?.kernelspecs[kernel.name];
  const provisioner = spec?.metadata?.['kernel_provisioner'] as Record<string, unknown> | undefined;
  return kernel.name === KERNEL_NAME || provisioner?.['provisioner_name'] === PROVISIONER_NAME;
}

/** Name kernels by the sessions of this server; a kernel without one has no name. */
export function nameBySession(services: ServiceManager.IManager): NameKernel {
  return kernelId => {
    for (const session of services.sessions.running()) {
      if (session.kernel?.id === kernelId) {
        return session.name || session.path;
      }
    }
    return '';
  };
}
