/**
 * The signal by which a child ends itself when isolated-vm has lost control of the isolate, which is when V8 could get no more memory for it.
 * Like SIGKILL it runs none of the process's own code, and it tells the supervisor the cause.
 */
export const catastropheSignal = "SIGUSR2";
