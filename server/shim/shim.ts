/** The build defines it: `shim.c`, compiled, in base64. */
declare const BUILD_SHIM: string;

export const shimProgram = (): Uint8Array => Uint8Array.fromBase64(BUILD_SHIM);
