export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly programName: string;
  /** `undefined` if it was removed. */
  findWorkingDirectory(): string | undefined;
  /** The process that started the program. */
  findParentPid(): number;
  /** When the program was started, in nanoseconds since 1970. */
  readonly startTime: bigint;
  /** Told of the code of an error (SPEC, section Error). */
  onFailure?(code: number): void;
}

/** A start by the kernel in this process, or by a shim in another. Standard streams are descriptors 0 to 2. */
export interface ProgramStart extends CliContext {
  /** Without the name of the program. */
  readonly argv: readonly string[];
}
