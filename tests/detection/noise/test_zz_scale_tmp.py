import time, math, random
import pytest
from datetime import timedelta
from server.detection.models import Comparison
from server.detection.noise.effects import min_effects
from server.detection.noise.profiles import refresh_profiles
from server.detection.noise.history import sessions_of_equal_kernels
from server.lab.models import Session, Trial
from tests.builders import *
from tests.detection.noise.shown import *
pytestmark = pytest.mark.django_db
def test_scale():
    ms=[build_machine(f"m{i}") for i in range(4)]
    cases=[build_case(f"c{i}") for i in range(300)]
    metric=build_metric()
    base=build_build(); pat=build_build()
    # many other sessions
    tr=[]
    rev=base.revision
    trials=Trial.objects.bulk_create([Trial(key=f"x{i}",purpose="head",base=rev,patched=rev,looks=[3],state="done") for i in range(5000)])
    Session.objects.bulk_create([Session(purpose="trial",trial=t,machine=m,base_build=base,patched_build=pat,state="done") for t in trials for m in ms], batch_size=2000)
    rng=random.Random(1)
    for n in range(60):
        for m in ms:
            t=shown_trial(m,{},night=n)
            s=t.sessions.get()
            ct=m.core_types.get()
            Comparison.objects.bulk_create([Comparison(session=s,case=c,metric=metric,core_type=ct,verdict="unchanged",base_boots=4,patched_boots=4,ratio=math.exp(rng.gauss(0,.01)),mde=.01,min_effect=.01,family_size=300,p_value=.5,base_mean=1,base_sd=.01,patched_mean=1,patched_sd=.01) for c in cases])
            Comparison.objects.filter(session=s).update(computed_at=EPOCH+n*NIGHT)
    from django.db import connection
    connection.cursor().execute("analyze")
    new=[equal_session(m,build_build(),purpose="health") for m in ms]
    Session.objects.filter(pk__in=[s.pk for s in new]).update(created_at=EPOCH+61*NIGHT)
    new=list(Session.objects.filter(pk__in=[s.pk for s in new]))
    for _ in range(3):
        t=time.time(); list(sessions_of_equal_kernels([m.pk for m in ms]).values_list("pk",flat=True)); a=time.time()-t
        t=time.time(); e=min_effects(new); b=time.time()-t
        t=time.time(); e1=min_effects(new[:1]); c=time.time()-t
        print("sessions",a,"min_effects 4 machines",len(e),b,"one",c)
    t=time.time(); refresh_profiles(ms[0]); print("refresh",time.time()-t)
    t=time.time(); refresh_profiles(ms[0]); print("refresh again",time.time()-t)
