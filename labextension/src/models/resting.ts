// What a person may do about kernels that no open notebook speaks for: hibernate one, resume one, delete one.
// A driver over Jupyter's own managers and the server extension; holds no state.
import { URLExt } from '@jupyterlab/coreutils';
import type { Kernel, ServiceManager } from '@jupyterlab/services';
import { ServerConnection } from '@jupyterlab/services';

import { hibernate, resume } from './actions';

const PATH = 'replkernel/api/kernels';

async function call(services: ServiceManager.IManager, method: string, kernelId: string): Promise<Response> {
  const { serverSettings } = services;
  const url = URLExt.join(serverSettings.baseUrl, PATH, encodeURIComponent(kernelId));
  const answer = await ServerConnection.makeRequest(url, { method }, serverSettings);
  if (!answer.ok) {
    throw await ServerConnection.ResponseError.create(answer);
  }
  return answer;
}

async function speak(
  services: ServiceManager.IManager,
  model: Kernel.IModel,
  action: (kernel: Kernel.IKernelConnection) => Promise<string>
): Promise<void> {
  const kernel = services.kernels.connectTo({ model, handleComms: false });
  try {
    await action(kernel);
  } finally {
    kernel.dispose();
  }
}

/** Hibernate a kernel of this server. */
export async function putToRest(services: ServiceManager.IManager, kernelId: string): Promise<void> {
  const model = await services.kernels.findById(kernelId);
  if (model !== undefined) {
    await speak(services, model, hibernate);
  }
}

/** Have a hibernated kernel served here, and its replicas resumed. */
export async function bringBack(services: ServiceManager.IManager, kernelId: string): Promise<void> {
  const model = (await (await call(services, 'POST', kernelId)).json()) as Kernel.IModel;
  await services.kernels.refreshRunning();
  await speak(services, model, resume);
}

/** End a kernel of this server, with its session and its variables. */
export async function shutDown(services: ServiceManager.IManager, kernelId: string): Promise<void> {
  const session = [...services.sessions.running()].find(one => one.kernel?.id === kernelId);
  await (session === undefined
    ? services.kernels.shutdown(kernelId)
    : services.sessions.shutdown(session.id));
}

/** Delete a hibernated kernel for good, with the session that it may have. */
export async function deleteResting(services: ServiceManager.IManager, kernelId: string): Promise<void> {
  await call(services, 'DELETE', kernelId);
  await Promise.all([services.sessions.refreshRunning(), services.kernels.refreshRunning()]);
}
