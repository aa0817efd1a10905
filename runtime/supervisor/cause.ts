/** What a log line says of an error: never the error itself, since a client hangs its connection, with everything that proves it, on its errors. */
export function causeOf(error: unknown): { name?: string; message: string; code?: string; stack?: string } {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack } = error;
  const code = "code" in error ? String(error.code) : undefined;
  return { name, message, ...(code === undefined ? {} : { code }), ...(stack === undefined ? {} : { stack }) };
}
