/** What Request and Response have in common (Fetch §5.3 "Body" mixin): the members by which a program reads the body. */
import type { Blob } from "./blob.ts";
import type { Body, Bytes } from "./body.ts";
import type { FormData } from "./form-data.ts";
import { defineProperty, getOwnPropertyDescriptor, ownKeys } from "./primordials.ts";
import type { ReadableStream } from "./streams.ts";

export interface BodyMembers {
  readonly body: ReadableStream<Bytes> | null;
  readonly bodyUsed: boolean;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Bytes>;
  text(): Promise<string>;
  json(): Promise<unknown>;
  blob(): Promise<Blob>;
  formData(): Promise<FormData>;
}

/** Gives a class these members as its own. `bodyOf` and `contentTypeOf` throw a TypeError for what is not of the class. */
export function defineBodyMembers<T extends BodyMembers>(
  prototype: T,
  bodyOf: (owner: T) => Body,
  contentTypeOf: (owner: T) => string | null,
): void {
  const members: BodyMembers & ThisType<T> = {
    get body() {
      return bodyOf(this).asStream();
    },
    get bodyUsed() {
      return bodyOf(this).isUsed;
    },
    async arrayBuffer() {
      return (await bodyOf(this).bytes()).buffer;
    },
    async bytes() {
      return await bodyOf(this).bytes();
    },
    async text() {
      return await bodyOf(this).text();
    },
    async json() {
      return await bodyOf(this).json();
    },
    async blob() {
      return await bodyOf(this).blob(contentTypeOf(this));
    },
    async formData() {
      return await bodyOf(this).formData(contentTypeOf(this));
    },
  };
  for (const name of ownKeys(members)) {
    const member = getOwnPropertyDescriptor(members, name) as PropertyDescriptor;
    member.enumerable = false;
    defineProperty(prototype, name, member);
  }
}
