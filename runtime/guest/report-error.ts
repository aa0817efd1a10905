/** Errors nobody caught (HTML "report an exception"): an `error` event first, then the failure of the run. */
import { dispatch, ErrorEvent, onListenerError } from "./events.ts";
import { globalTarget } from "./global-scope.ts";
import { failCurrentRun } from "./run.ts";

let isReporting = false;

/** Reports an error as the global `reportError` does: unless an `error` listener prevents it, the run fails. */
export function reportError(error: unknown): void {
  let isHandled = false;
  // An error inside an `error` listener is not announced again.
  if (!isReporting) {
    isReporting = true;
    try {
      const message = error instanceof Error ? `Uncaught ${error.name}: ${error.message}` : "Uncaught exception";
      isHandled = !dispatch(globalTarget, new ErrorEvent("error", { error, message, cancelable: true }));
    } catch {
      isHandled = false;
    } finally {
      isReporting = false;
    }
  }
  if (!isHandled) failCurrentRun(error);
}
onListenerError(reportError);

/** Calls into the program; what it throws is reported instead of reaching the host. */
export function guarded(call: () => void): void {
  try {
    call();
  } catch (error) {
    reportError(error);
  }
}
