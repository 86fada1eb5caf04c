/** The build defines it if there was a C compiler: `shim.c`, compiled, in base64. */
declare const BUILD_SHIM: string | undefined;

/** @throws {RangeError} if the build had no C compiler */
export function shimProgram(): Uint8Array {
  if (typeof BUILD_SHIM === "string" && BUILD_SHIM !== "") return Uint8Array.fromBase64(BUILD_SHIM);
  throw new RangeError("Cannot install the shim: this program was built without it, since there was no C compiler");
}
