/** The global scope as an event target: `error` and `unhandledrejection`. */
import { defineHandler, EventTarget } from "./events.ts";

class GlobalScope extends EventTarget {}

export const globalTarget = new GlobalScope();

/** The functions and handler attributes to put on globalThis. */
export function scopeMembers(): Record<string, PropertyDescriptor> {
  const members: Record<string, PropertyDescriptor> = {};
  for (const name of ["addEventListener", "removeEventListener", "dispatchEvent"] as const) {
    members[name] = { value: globalTarget[name].bind(globalTarget), writable: true, enumerable: true, configurable: true };
  }
  for (const type of ["error", "unhandledrejection", "rejectionhandled"]) {
    defineHandler(GlobalScope.prototype, type);
    const own = Object.getOwnPropertyDescriptor(GlobalScope.prototype, `on${type}`) as Required<Pick<PropertyDescriptor, "get" | "set">>;
    members[`on${type}`] = {
      get: () => own.get.call(globalTarget),
      set: (value: unknown) => own.set.call(globalTarget, value),
      enumerable: true,
      configurable: true,
    };
  }
  return members;
}
