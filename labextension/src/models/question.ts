// One question to a kernel on its control channel, and its answer. Holds no state.
import type { Kernel } from '@jupyterlab/services';
import { KernelMessage } from '@jupyterlab/services';

/** How long an answer may take. */
export const ANSWER_MAX_MS = 10_000;

/**
 * Send `content` as a message of type `type`, and resolve with the content of the reply; reject after a while,
 * and as soon as the connection is lost.
 */
export function ask(
  kernel: Kernel.IKernelConnection,
  type: string,
  content: object,
  answerMaxMs = ANSWER_MAX_MS
): Promise<unknown> {
  // JupyterLab's types list the messages of the specification; a kernel may know others.
  const message = KernelMessage.createMessage<KernelMessage.IDebugRequestMsg>({
    msgType: type as 'debug_request',
    channel: 'control',
    username: kernel.username,
    session: kernel.clientId,
    content: content as KernelMessage.IDebugRequestMsg['content']
  });
  return new Promise((resolve, reject) => {
    const future = kernel.sendControlMessage(message, true);
    const finish = (error: Error | null, answer?: unknown): void => {
      clearTimeout(timer);
      kernel.connectionStatusChanged.disconnect(lost);
      future.dispose();
      if (error === null) {
        resolve(answer);
      } else {
        reject(error);
      }
    };
    const lost = (_: unknown, status: Kernel.ConnectionStatus): void => {
      if (status === 'connected') {
        return; // A connection that was being made: the question was kept until now.
      }
      finish(new Error(`The connection was lost before the kernel answered ${type}.`));
    };
    const timer = setTimeout(() => {
      finish(new Error(`The kernel did not answer ${type} within ${answerMaxMs / 1000} s.`));
    }, answerMaxMs);
    kernel.connectionStatusChanged.connect(lost);
    future.onReply = reply => {
      finish(null, reply.content);
    };
  });
}
