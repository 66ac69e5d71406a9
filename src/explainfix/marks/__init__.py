"""Everything that explainfix leaves on a module, in one list: names of attributes, and hooks.

| on | what | by |
|---|---|---|
| a model | `ORIGIN`: what `create_model` was asked for, or `None` | `store.set_origin` |
| a module | `CHANGES`: how modules in it were cut, parted or merged, and when | `marks.changes` |
| a model | `UNTRAINED`: checksums of the random weights it was built with | `marks.untrained` |
| a convolution | `RECIPE`: how its kernels were fixed; in a state_dict's metadata too | `recipe` |
| a convolution | `WAITING`: a recipe, until the load that brought it has ended | `recipe` |
| a convolution | a state_dict hook and a load_state_dict hook that carry its recipe | `recipe` |
| a model | a hook at the end of load_state_dict, if that brought recipes | `recipe` |
| a fixed convolution | a forward hook that keeps less for the backward pass | `backward.frozen` |
| any layer | forward hooks that keep still less, after `make_frugal_` | `backward.recompute` |

No parameter, buffer, module or key of a state_dict is added, and no class changes.
"""

ORIGIN = "explainfix_origin"
UNTRAINED = "explainfix_untrained"
CHANGES = "explainfix_changes"
RECIPE = "explainfix_recipe"
WAITING = "explainfix_waiting"
