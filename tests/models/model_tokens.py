"""In the model of commit_model.py: the ledger's token partition loses records.

They are deleted, by hand or by age: then its log begins later than what is asked for. Or an unclean
leader election cuts its end off; and the next marker may land where a token was, so that nothing
seems to lack. Who reads on would take what was committed for aborted.

These rules keep that from being so. Who stops by them stops until a person has looked:
- tokens_begin_where_asked: where the log begins later, nothing is said of what has no token.
- ended_has_its_token: an EndTxn that was answered as done says that its transaction is committed.
  If its token is not there, it was lost.
- kafka_tells_of_each: who sees by one of these that tokens are lost goes on only if EndTxn or
  Describe tell of each that lacks its token how it ended.

Not modelled: that the end of the log is before where tokens stood (`token_until`). Not kept: tasks
that commit by themselves may repeat rows whose tokens are lost (of those that were deleted it is
warned); and of a transaction whose id was taken again, nothing tells.
"""

from __future__ import annotations

from commit_model import DELETED, Moves, Setting, World

CUT = "cut off"


def chaos(world: World, setting: Setting) -> Moves:
    if not setting.loses_tokens or world.lost_tokens:
        return
    for lost in {world.tokens, *((token,) for token in world.tokens)} - {()}:
        left = tuple(token for token in world.tokens if token not in lost)
        named = f"{len(lost)} tokens are {setting.loses_tokens}"
        yield named, world._replace(tokens=left, lost_tokens=lost)


# Later generations have ids of their own.
OWN_IDS = Setting(splits=("ab",), slots=2, loses_tokens=CUT)
SHARED_IDS = Setting(splits=("ab",), loses_tokens=DELETED)
