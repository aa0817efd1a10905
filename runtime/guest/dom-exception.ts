/** DOMException (Web IDL §2.8). */
const legacyCodes: Record<string, number> = Object.assign(Object.create(null), {
  IndexSizeError: 1,
  HierarchyRequestError: 3,
  WrongDocumentError: 4,
  InvalidCharacterError: 5,
  NoModificationAllowedError: 7,
  NotFoundError: 8,
  NotSupportedError: 9,
  InUseAttributeError: 10,
  InvalidStateError: 11,
  SyntaxError: 12,
  InvalidModificationError: 13,
  NamespaceError: 14,
  InvalidAccessError: 15,
  TypeMismatchError: 17,
  SecurityError: 18,
  NetworkError: 19,
  AbortError: 20,
  URLMismatchError: 21,
  QuotaExceededError: 22,
  TimeoutError: 23,
  InvalidNodeTypeError: 24,
  DataCloneError: 25,
});

const modernNames: Record<string, true> = Object.assign(Object.create(null), {
  EncodingError: true,
  NotReadableError: true,
  UnknownError: true,
  ConstraintError: true,
  DataError: true,
  TransactionInactiveError: true,
  ReadOnlyError: true,
  VersionError: true,
  OperationError: true,
  NotAllowedError: true,
});

/** True for the names that only a DOMException carries. */
export const isDomExceptionName = (name: string): boolean => name !== "SyntaxError" && (name in legacyCodes || name in modernNames);

export class DOMException extends Error {
  static {
    for (const name in legacyCodes) {
      const constant = `${name.replace(/Error$/, "").replace(/(?<=[a-z])(?=[A-Z])|(?<=URL)/g, "_")}_ERR`.toUpperCase();
      const property = { value: legacyCodes[name], enumerable: true };
      Object.defineProperty(DOMException, constant, property);
      Object.defineProperty(DOMException.prototype, constant, property);
    }
  }
  #name: string;

  constructor(message = "", options: string | { name?: string; cause?: unknown } = "Error") {
    super(`${message}`);
    this.#name = typeof options === "string" ? options : `${options?.name ?? "Error"}`;
    if (typeof options === "object" && options !== null && "cause" in options) {
      Object.defineProperty(this, "cause", { value: options.cause, configurable: true, writable: true });
    }
    // The stack V8 made says "Error: …"; say the name instead.
    const { stack } = this;
    if (typeof stack === "string" && stack.startsWith("Error")) {
      Object.defineProperty(this, "stack", { value: this.#name + stack.slice(5), configurable: true, writable: true });
    }
  }
  override get name(): string {
    return this.#name;
  }
  get code(): number {
    return legacyCodes[this.#name] ?? 0;
  }
  get [Symbol.toStringTag](): string {
    return "DOMException";
  }
}
