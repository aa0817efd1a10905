/** What the guest kit may call. Every function is synchronous and must never throw: a stack would show the host's files. */
export interface GuestCallbacks {
  /** `more`: chunks follow. `isLast`: nothing of the run is open any more; it is done with this answer, and `done` is not called. */
  respond(
    runKey: number,
    status: number,
    headersJson: string,
    body: string | ArrayBuffer | undefined,
    more: boolean,
    isLast: boolean,
  ): void;
  chunk(runKey: number, data: string | ArrayBuffer): boolean;
  end(runKey: number): void;
  fail(runKey: number, kind: string, detail: string): void;
  done(runKey: number): void;
  call(callId: number, runKey: number, op: string, text: string, bytes: ArrayBuffer | undefined): void;
  sync(op: string, text: string, bytes: ArrayBuffer | undefined): string | ArrayBuffer;
  log(runKey: number, level: string, text: string): void;
  startTimer(timerId: number, runKey: number, delayMs: number, repeat: boolean): void;
  stopTimer(timerId: number): void;
  now(): number;
}
