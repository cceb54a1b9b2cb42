// Lets node find compiled modules that name each other without `.js`, as bundlers do.
export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context);
  } catch (error) {
    if (specifier.startsWith('.') && error.code === 'ERR_MODULE_NOT_FOUND') {
      return next(`${specifier}.js`, context);
    }
    throw error;
  }
}
